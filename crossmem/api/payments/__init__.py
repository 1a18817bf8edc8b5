"""Payments: how Stripe is reached and spoken to, and an emulator of the part that is used."""
