"""Where instances should run: a placement problem out of what was measured, decided calmly, and carried out."""
