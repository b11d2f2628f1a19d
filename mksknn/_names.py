"""The names that arguments take, each written once: for type checkers, and for the gate."""

from __future__ import annotations

from typing import Literal, get_args

MetricName = Literal["euclidean", "manhattan", "chebyshev", "cosine", "precomputed"]
EvidenceGraph = Literal["mutual", "symmetric"]
Graph = Literal["knn", EvidenceGraph]
ChosenGraph = Literal[Graph, "auto"]
ClassFormulation = Literal["binary", "I", "II"]
Formulation = Literal["auto", ClassFormulation]
Encoding = Literal["regression", ClassFormulation]  # what becomes of it
Task = Literal["auto", "classification", "regression"]
Weights = Literal["evidence", "loo_log"]
Criterion = Literal["evidence", "loo", "loo_log"]
Backend = Literal["auto", "lapack", "cholmod", "superlu"]
Ties = Literal["nearest", "lowest"]
Family = Literal["scale", "whiten", "within", "relevance"]  # of learned distances
Score = Literal["error", "log_score"]  # that a figure shows
Scale = Literal["auto", "linear", "log"]  # of an axis

METRICS: tuple[MetricName, ...] = get_args(MetricName)
EVIDENCE_GRAPHS: tuple[EvidenceGraph, ...] = get_args(EvidenceGraph)
GRAPHS: tuple[Graph, ...] = get_args(Graph)
FORMULATIONS: tuple[Formulation, ...] = get_args(Formulation)
TASKS: tuple[Task, ...] = get_args(Task)
WEIGHTS: tuple[Weights, ...] = get_args(Weights)
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)
BACKENDS: tuple[Backend, ...] = get_args(Backend)
TIES: tuple[Ties, ...] = get_args(Ties)
FAMILIES: tuple[Family, ...] = get_args(Family)
SCORES: tuple[Score, ...] = get_args(Score)
SCALES: tuple[Scale, ...] = get_args(Scale)
