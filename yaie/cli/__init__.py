"""The command line. One module for each command; what they share is in `options.py` and `console.py`.

Nothing slow is imported at the top of these modules: `yaie --help` answers without torch,
transformers or the web framework.
"""
