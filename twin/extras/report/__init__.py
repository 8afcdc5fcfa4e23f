"""A plan or a run as one HTML file that needs no network: to send along, or to print."""

from twin.hooks import Report, Section

HOOKS = (
    Report("plan", "twin.extras.report.reports:plan_report"),
    Report("run", "twin.extras.report.reports:run_report"),
    Section("Report (HTML)", "twin.extras.report.section:draw_run_download", "run.download"),
    Section("report", "twin.extras.report.section:draw_plan_download", "plan.download"),
)
