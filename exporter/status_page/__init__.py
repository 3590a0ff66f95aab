"""The status page at ``/``: HTML, style and script in one document."""
