"""The status page at ``/``: HTML, style and script, served as one answer."""
