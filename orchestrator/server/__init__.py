"""The local web application over the results: pages for people, JSON for programs."""
