"""`servo doctor`: checks of a project and of the machine that it is on."""
