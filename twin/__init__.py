"""A digital twin of an AI supernode that serves large language models.

Reading order: `scenario` (what can be asked), `facts` (what is known), `engine.simulate` (how time
passes), then one phase, for example `engine.phases.decode`, with the kernel it calls in
`model.decode` and the policy it asks in `policies.router`. `lab` is the shell around it: disk,
database, links, many runs. `ui` is the screen.

The public names are `simulate` and `Run` of `twin.engine.simulate`, `Scenario` of `twin.scenario`,
`load_facts` of `twin.lab.library`.
"""
