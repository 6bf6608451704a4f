-- park_message: waiting -> parked, by a person. $1 id, $2 reason
SELECT holdfast.park_message($1::text, $2::text)
