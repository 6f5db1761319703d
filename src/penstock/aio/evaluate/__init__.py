"""How good a router is: real outcomes read from files, split by question and subject, and judged.

Files are read here and figures come out; nothing here routes, prints or knows of a server.
A recipe is judged only on questions it was not trained on, whatever file they came from.
"""
