"""What users declare: tasks, their options, payloads, settings, schedules, plug-ins, and the policy file."""
