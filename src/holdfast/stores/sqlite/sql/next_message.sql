-- next_message: the time at which a message of this topic may be taken.
SELECT CASE WHEN EXISTS (SELECT 1 FROM holdfast_outbox WHERE topic = :topic AND line = 0) THEN 0
            ELSE (SELECT min(not_before) FROM holdfast_outbox WHERE topic = :topic AND line = 2) END
