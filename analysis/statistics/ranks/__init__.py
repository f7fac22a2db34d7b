"""Rankings on one platform: FRM, composites, disagreement with FLOPs, sets of ranks.

Open `frm_scores` first.
"""
