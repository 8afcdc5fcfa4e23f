"""Why a run is as fast as it is, and what would help: every sentence measured by a re-run."""
