"""Clients' interfaces: ``/api/v1``, ``/v2.1``, ``/openapi.json``. They write desired state and nothing else."""
