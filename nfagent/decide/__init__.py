"""Decides where instances should run: builds a placement problem from measurements, solves it, and acts."""
