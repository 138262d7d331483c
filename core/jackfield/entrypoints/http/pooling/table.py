"""The routes of models that give vectors, labels or scores; and scores of models that generate."""

from __future__ import annotations

from jackfield.entrypoints.http.pooling import embeddings, scoring
from jackfield.entrypoints.http.schemas import pooling
from jackfield.hookspecs import Route
from jackfield.hookspecs import RouteLevel as Level

POOLING: tuple[Route, ...] = (
    Route(
        path="/v1/embeddings",
        methods=("POST",),
        level=Level.KEY,
        handler=embeddings.embeddings,
        summary="OpenAI's embeddings, of a model that gives any.",
        request=pooling.EmbeddingsBody,
        examples=({"input": "Hello"},),
        response=pooling.Embeddings,
        generates=True,
    ),
    Route(
        path="/encode",
        methods=("POST", "PUT"),
        level=Level.KEY,
        handler=embeddings.encode,
        summary="The embedding of one text or a batch, in SGLang's shape.",
        request=pooling.EncodeBody,
        examples=({"text": "Hello"},),
        response=pooling.Encoded,
        generates=True,
    ),
    Route(
        path="/classify",
        methods=("POST", "PUT"),
        level=Level.KEY,
        handler=embeddings.classify,
        summary="The labels' logits and scores for one text or a batch, in SGLang's shape, of a classification model.",
        request=pooling.LabelsBody,
        response=pooling.Labelled,
        generates=True,
    ),
    Route(
        path="/v1/classify",
        methods=("POST",),
        level=Level.KEY,
        handler=scoring.classify,
        summary="The best label and all labels' scores of each text, of a classification model.",
        request=pooling.ClassifyBody,
        response=pooling.Classification,
        generates=True,
    ),
    Route(
        path="/v1/score",
        methods=("POST",),
        level=Level.KEY,
        handler=scoring.score,
        summary="Scores of pairs of texts, of a cross-encoder or (cosine) an embedding model; of one that generates, the "
        "probabilities of label tokens behind query and item, as in SGLang.",
        request=pooling.ScoreBody,
        response=pooling.Scores,
        generates=True,
    ),
    *(
        Route(
            path=path,
            methods=("POST",),
            level=Level.KEY,
            handler=scoring.rerank,
            summary="Documents by how well they answer a query, best first, in Jina's and Cohere's shape.",
            request=pooling.RerankBody,
            response=pooling.Ranking,
            ceilings={"documents": "max_prompts_per_request"},
            generates=True,
        )
        for path in ("/v1/rerank", "/rerank")
    ),
)
