"""Diagnosis of a stuck group: facts in, findings out.

Facts are collected elsewhere; nothing here queries a proxy or broker, prints, or reads a clock.
"""
