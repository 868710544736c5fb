"""What agents noted of themselves and what their pilots printed, read while both go on."""
