"""Machine faults for the project's commands: full disks, kills, removed folders (``make chaos``)."""
