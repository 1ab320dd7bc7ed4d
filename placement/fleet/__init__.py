"""The placements of many servers, solved side by side on a Dask cluster."""
