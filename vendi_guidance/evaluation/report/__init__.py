"""Reports: the page, tables, figures and data files of an evaluation."""
