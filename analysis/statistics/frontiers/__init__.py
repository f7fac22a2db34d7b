"""Does a Pareto frontier hold on another platform, and what does a choice by it cost?

Open `frontier_transfer` first.
"""
