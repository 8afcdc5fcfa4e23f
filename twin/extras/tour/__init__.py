"""The two-minute tour of the first page."""

from twin.hooks import Section

HOOKS = (Section("tour", "twin.extras.tour.tour:draw_tour", "start.top"),)
