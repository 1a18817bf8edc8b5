"""The objects behind the Stripe emulator: PaymentIntents, their charges, refunds. No HTTP here."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crossmem.api.payments.calls import Call, EmulatedError
from crossmem.api.payments.cards import CARDS, StripeCard

Object = dict[str, Any]
"""A Stripe object as it is in a response."""

# Stripe's limits; the minimum is that of a charge in its settlement currency.
MINIMUM = 50
SIGNS = {"usd": "$", "eur": "€"}
REASONS = ("duplicate", "fraudulent", "requested_by_customer")
CONFIRM_PARAMS = frozenset({"expand", "payment_method"})
INTENT_PARAMS = CONFIRM_PARAMS | frozenset(
    "amount automatic_payment_methods confirm currency description metadata".split()
)
REFUND_PARAMS = frozenset("amount expand metadata payment_intent reason".split())


@dataclass
class Account:
    """What one API key has made, by ids; `cards` holds the card behind each payment method."""

    intents: dict[str, Object] = field(default_factory=dict)
    charges: dict[str, Object] = field(default_factory=dict)
    methods: dict[str, Object] = field(default_factory=dict)
    cards: dict[str, StripeCard] = field(default_factory=dict)
    refunds: dict[str, Object] = field(default_factory=dict)


def create_intent(account: Account, call: Call) -> Object:
    """Create a PaymentIntent, and confirm it with `confirm=true`."""
    call.known(INTENT_PARAMS)
    amount = call.amount()
    currency = call.required("currency")
    if currency not in SIGNS:
        raise EmulatedError(f"Invalid currency: {currency}", param="currency")
    if amount < MINIMUM:
        least = f"{SIGNS[currency]}{MINIMUM / 100:.2f} {currency}"
        raise EmulatedError(f"Amount must be at least {least}", "amount_too_small", "amount")
    confirming = call.form.get("confirm") == "true"
    card = _card(call)
    if confirming and card is None:
        message = "You cannot confirm this PaymentIntent because it's missing a payment method."
        raise EmulatedError(message, "parameter_missing", "payment_method")
    intent: Object = {
        "id": f"pi_{call.seed}",
        "object": "payment_intent",
        "amount": amount,
        "amount_received": 0,
        "capture_method": "automatic",
        "created": int(time.time()),
        "currency": currency,
        "customer": None,
        "description": call.form.get("description"),
        "last_payment_error": None,
        "latest_charge": None,
        "livemode": False,
        "metadata": call.metadata(),
        "payment_method": None,
        "payment_method_types": ["card"],
        "status": "requires_payment_method",
    }
    account.intents[intent["id"]] = intent
    if card is not None:
        intent["payment_method"] = _attached(account, card, call.seed)
        intent["status"] = "requires_confirmation"
        if confirming:
            return _charged(account, intent, card, call)
    return _shown(account, intent, call)


def confirm_intent(account: Account, call: Call) -> Object:
    """Charge the card of a PaymentIntent, or another one given now."""
    call.known(CONFIRM_PARAMS)
    card = _card(call)
    intent = _found(account.intents, "payment_intent", call.path["id"], "intent")
    if intent["status"] == "succeeded":
        raise _unexpected(intent, "because it has already succeeded after being previously confirmed")
    if card is not None:
        intent["payment_method"] = _attached(account, card, call.seed)
    elif intent["payment_method"] is None:
        raise _unexpected(intent, "because it's missing a payment method")
    else:
        card = account.cards[intent["payment_method"]]
    return _charged(account, intent, card, call)


def read_intent(account: Account, call: Call) -> Object:
    """Return a PaymentIntent."""
    return _shown(account, _found(account.intents, "payment_intent", call.path["id"], "intent"), call)


def read_refund(account: Account, call: Call) -> Object:
    """Return a refund."""
    return copy.deepcopy(_found(account.refunds, "refund", call.path["id"], "refund"))


def create_refund(account: Account, call: Call) -> Object:
    """Refund the charge of a PaymentIntent: what is left of it, or `amount`."""
    call.known(REFUND_PARAMS)
    reason = call.form.get("reason")
    if reason is not None and reason not in REASONS:
        raise EmulatedError(f"Invalid reason: must be one of {', '.join(REASONS)}", param="reason")
    given = call.amount() if "amount" in call.form else None
    intent_id = call.required("payment_intent")
    intent = _found(account.intents, "payment_intent", intent_id, "payment_intent")
    charge = account.charges.get(intent["latest_charge"] or "")
    if charge is None or charge["status"] != "succeeded":
        message = f"This PaymentIntent ({intent_id}) does not have a successful charge to refund."
        raise EmulatedError(message, executed=True)
    left = charge["amount"] - charge["amount_refunded"]
    if left == 0:
        message = f"Charge {charge['id']} has already been refunded."
        raise EmulatedError(message, "charge_already_refunded", executed=True)
    amount = left if given is None else given
    if amount > left:
        # Stripe gives no `code` here, only the parameter.
        sign = SIGNS[charge["currency"]]
        of = "charge amount" if left == charge["amount"] else "unrefunded amount on charge"
        asked, rest = f"{sign}{amount / 100:.2f}", f"{sign}{left / 100:.2f}"
        message = f"Refund amount ({asked}) is greater than {of} ({rest})"
        raise EmulatedError(message, param="amount", executed=True)
    charge["amount_refunded"] += amount
    charge["refunded"] = charge["amount_refunded"] == charge["amount"]
    refund: Object = {
        "id": f"re_{call.seed}",
        "object": "refund",
        "amount": amount,
        "charge": charge["id"],
        "created": int(time.time()),
        "currency": charge["currency"],
        "metadata": call.metadata(),
        "payment_intent": intent_id,
        "reason": reason,
        "status": "succeeded",
    }
    account.refunds[refund["id"]] = refund
    return copy.deepcopy(refund)


def _charged(account: Account, intent: Object, card: StripeCard, call: Call) -> Object:
    declined = card.decline
    charge: Object = {
        "id": f"ch_{call.seed}",
        "object": "charge",
        "amount": intent["amount"],
        "amount_refunded": 0,
        "created": int(time.time()),
        "currency": intent["currency"],
        "failure_code": declined and declined.code,
        "livemode": False,
        "paid": declined is None,
        "payment_intent": intent["id"],
        "payment_method": intent["payment_method"],
        "payment_method_details": {"type": "card", "card": _described(card)},
        "refunded": False,
        "status": "succeeded" if declined is None else "failed",
    }
    account.charges[charge["id"]] = charge
    intent["latest_charge"] = charge["id"]
    if declined is None:
        intent |= {"status": "succeeded", "amount_received": intent["amount"]}
        intent["last_payment_error"] = None
        return _shown(account, intent, call)
    refusal = EmulatedError(
        declined.message,
        declined.code,
        declined.param,
        status=402,
        type="card_error",
        executed=True,
        charge=charge["id"],
        decline_code=declined.decline_code,
        payment_method=copy.deepcopy(account.methods[intent["payment_method"]]),
    )
    # The intent takes another card now; the one that was declined is in the error.
    intent |= {
        "last_payment_error": dict(refusal.error),
        "payment_method": None,
        "status": "requires_payment_method",
    }
    refusal.error["payment_intent"] = copy.deepcopy(intent)
    raise refusal


def _card(call: Call) -> StripeCard | None:
    token = call.form.get("payment_method")
    if token is None:
        return None
    if token not in CARDS:
        raise EmulatedError(f"No such PaymentMethod: '{token}'", "resource_missing", "payment_method")
    return CARDS[token]


def _attached(account: Account, card: StripeCard, seed: str) -> str:
    """Make a payment method of a card; return its id."""
    method = f"pm_{seed}"
    account.cards[method] = card
    account.methods[method] = {
        "id": method,
        "object": "payment_method",
        "card": _described(card),
        "livemode": False,
        "type": "card",
    }
    return method


def _described(card: StripeCard) -> Object:
    return {"brand": card.brand, "funding": card.funding, "last4": card.last4}


def _shown(account: Account, intent: Object, call: Call) -> Object:
    shown = copy.deepcopy(intent)
    known = {"payment_method": account.methods, "latest_charge": account.charges}
    for name in call.expanded():
        if name not in known:
            raise EmulatedError(f"This property cannot be expanded ({name}).")
        if shown[name] is not None:
            shown[name] = copy.deepcopy(known[name][shown[name]])
    return shown


def _found(objects: Mapping[str, Object], kind: str, wanted: str, param: str) -> Object:
    if wanted not in objects:
        message = f"No such {kind}: '{wanted}'"
        raise EmulatedError(message, "resource_missing", param, status=404, executed=True)
    return objects[wanted]


def _unexpected(intent: Object, why: str) -> EmulatedError:
    return EmulatedError(
        f"You cannot confirm this PaymentIntent {why}.",
        "payment_intent_unexpected_state",
        executed=True,
        payment_intent=copy.deepcopy(intent),
    )
