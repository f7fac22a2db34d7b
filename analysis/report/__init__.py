"""The page: evidence gathered once, then figures, tables and words.

Open `page` first. `page_data` makes the data, `templates/NAME.js` with `NAME.vl.json` each chart.
"""
