"""Answers that are kept and given again: to the same request, or to one that says the same.

Knows requests, answers and where they are kept; must not know queues, balancing or who computes an answer.
What is kept for one tenant is never seen by another, and a store that fails costs hits, never requests.
"""
