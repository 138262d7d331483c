"""What the main process holds of a replica, built for both topologies. Knows no process and no socket: channels are handed in."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.entrypoints.model_texts import Texts
from jackfield.entrypoints.monitor import Monitor
from jackfield.entrypoints.plan import ReplicaPlan
from jackfield.hookspecs import WorkerLimits
from jackfield.ipc.channels import Receiver, Sender
from jackfield.managers.chat.parsers import Parsers
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.grammar import Grammars
from jackfield.managers.fields.limits import RequestLimits
from jackfield.managers.fields.sampling_params import Processors, check_defaults
from jackfield.managers.fields.worker_features import WorkerFeatures
from jackfield.managers.requests.limits import ReplicaLimits
from jackfield.managers.sessions.sessions import SessionLimits, Sessions
from jackfield.managers.template_manager import TemplateManager
from jackfield.managers.tokenizer_manager import TokenizerManager
from jackfield.observability.clock import Clock
from jackfield.stack.epochs import StackEpochs
from jackfield.stack.loading.load import LoadedStack
from jackfield.stack.loading.parameters import BadParameters, RequestParameters
from jackfield.stack.runtime.observers import ObserverHub

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MainSide:
    tokenizer_manager: TokenizerManager
    template_manager: TemplateManager
    parsers: Parsers


def sampling_defaults(plan: ReplicaPlan, processors: Processors) -> dict[str, Any]:
    """Checked once, at start, so that a broken checkpoint or setting is refused there and not at each request."""
    defaults: dict[str, Any] = {}
    limits = RequestLimits.of(plan.args)
    features = worker_features(plan)
    if plan.args.sampling_defaults == "model":
        defaults.update(plan.facts.config.default_sampling_params)
        for field, feature in features.lacking(check_defaults(defaults, limits=limits)):
            # The checkpoint's wish and nobody's order: said, and no reason to run nothing.
            value = defaults.pop(field)
            log.warning("the model's %s = %s is not applied: worker %r lacks %r", field, value, features.name, feature)
    defaults.update(plan.args.preferred_sampling_params or {})
    features.check_defaults(check_defaults(defaults, processors, limits))
    return defaults


def request_processors(loaded: LoadedStack) -> Processors:
    """Checks a request's `logits_processors` against the models of the loaded plugins; RequestError if one does not fit."""
    parameters = RequestParameters(loaded)

    def checked(given: Any) -> dict[str, dict[str, Any]]:
        try:
            return parameters.checked(given)
        except BadParameters as error:
            raise RequestError(error.message, param=error.param) from error

    return checked


def worker_features(plan: ReplicaPlan) -> WorkerFeatures:
    """What the worker's manifest declares."""
    worker = plan.stack.one("worker")
    assert worker is not None
    return WorkerFeatures(name=worker.name, declared=frozenset(worker.manifest.features))


def build_main(
    plan: ReplicaPlan,
    texts: Texts,
    limits: WorkerLimits,
    defaults: Mapping[str, Any],
    processors: Processors,
    grammars: Grammars,
    parsers: Parsers,
    *,
    to_scheduler: Sender,
    inbox: Receiver,
    clock: Clock,
    observers: ObserverHub,
    monitor: Monitor,
    stacks: StackEpochs,
) -> MainSide:
    """limits: the worker's; defaults, processors, grammars: from `sampling_defaults`, `request_processors` and
    `request_grammars`; parsers: of `make_parsers`; monitor: `attach` it to what comes of this."""
    tokenizer = texts.tokenizer
    return MainSide(
        tokenizer_manager=TokenizerManager(
            tokenizer=tokenizer,
            limits=ReplicaLimits(
                context_length=min(plan.facts.config.context_length, limits.max_context),
                total_slots=limits.total_slots,
                page_size=limits.page_size,
                vocab_size=limits.vocab_size,
                requests=RequestLimits.of(plan.args),
                pooling=plan.facts.pooling,
                kv_bytes_per_slot=limits.kv_bytes_per_slot,
            ),
            sampling_defaults=defaults,
            worker=worker_features(plan),
            processors=processors,
            grammars=grammars,
            weight_version=plan.args.weight_version,
            to_scheduler=to_scheduler,
            inbox=inbox,
            clock=clock,
            observers=observers,
            metrics=monitor.requests,
            stacks=stacks,
            sessions=Sessions(
                clock,
                SessionLimits(
                    sessions=plan.args.max_sessions,
                    tokens=plan.args.max_session_tokens,
                    timeout=float(plan.args.session_timeout),
                    turns=plan.args.max_session_turns,
                    id_length=plan.args.max_request_id_length,
                ),
            ),
        ),
        template_manager=TemplateManager(
            texts.files,
            plan.args.chat_template,
            tokenizer,
            limits=RequestLimits.of(plan.args),
            context_length=min(plan.facts.config.context_length, limits.max_context),
        ),
        parsers=parsers,
    )
