"""The REST client of oneswitchd: one method per request of docs/architecture.md, answers as typed data."""
