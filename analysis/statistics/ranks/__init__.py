"""Rankings on one platform: FRM, composites, disagreement with FLOPs.

Open `frm_scores` first.
"""
