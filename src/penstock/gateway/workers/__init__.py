"""Several front processes on one address: started, watched and told of changes by a supervisor.

They share engines (over sockets), limits and ledger (in the store) and answer `/metrics` together.
What a front process does is not known here; that is `front`.
"""
