-- Whether any breaker holds its lanes: a claim asks that first.
CREATE INDEX holdfast_breaker_holding ON holdfast_breaker (holding) WHERE holding;
