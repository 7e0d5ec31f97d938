"""The run folder: what a run writes, so that it can be read, resumed and repeated without any server.

`folder.Run` opens a run to work with it: its job, its predictions, its page. `record.RunRecord` is what the files of
any run say, also of one that failed or is damaged. Pages are made from it. `store.Store` is one party's writes.
"""
