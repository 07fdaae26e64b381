//! Every bound of these rules by name, with its unit and its cost.

use std::time::Duration;

/// Names in `x-kubernetes-list-map-keys` that count. Time: that many look-ups for each item.
pub const LIST_KEYS_MAX: usize = 32;

/// States of the automata of all patterns in one CustomResourceDefinition, and of those in the rules of one schema.
/// Patterns in use have some hundred each, long ones of Unicode classes some 30,000. Memory: some hundred bytes each,
/// once an object of the type was validated.
pub const PATTERN_STATES_MAX: usize = 128 << 10;

/// States that each pattern counts for at least.
pub const PATTERN_STATES: usize = 64;

/// Bytes of one compiled pattern.
pub const PATTERN_BYTES_MAX: usize = 8 << 20;

/// Bytes of a cache for matching one pattern, for each thread that does.
pub const PATTERN_CACHE_BYTES: usize = 32 << 10;

/// Steps in validating one object against its schema, of about 10 ns: each schema for each value takes
/// [`STEPS_PER_VALUE`], each value of an enum one, and a pattern one for each byte and [`STATES_PER_STEP`].
pub const VALIDATION_STEPS_MAX: usize = 50_000_000;

/// Steps for each schema of each value.
pub const STEPS_PER_VALUE: usize = 10;

/// Bytes of a text that a step reads.
pub const BYTES_PER_STEP: usize = 8;

/// States of a pattern that take one step for each byte. Most texts are in few states at a time; patterns such as
/// `[ab]*a[ab]{1000}c` are in half of theirs.
pub const STATES_PER_STEP: usize = 16;

/// Values of an enum listed in the cause for another value; further ones are counted.
pub const ALLOWED_VALUES_MAX: usize = 100;

/// Bytes of these values. Memory: for each of at most a hundred causes of one answer.
pub const ALLOWED_BYTES_MAX: usize = 4 << 10;

/// Bytes of one expression in CEL. Longest ones in use have some 3 KiB.
pub const EXPRESSION_BYTES_MAX: usize = 16 << 10;

/// Bytes of all expressions in one schema, webhook or policy. Memory: some 40 times as much, once an object of the type
/// was written.
pub const EXPRESSIONS_BYTES_MAX: usize = 256 << 10;

/// Levels of one expression. Stack: some KiB each.
pub const EXPRESSION_DEPTH_MAX: usize = 100;

/// Lists, maps, macros and optional values that one expression makes: its values nest at most that much deeper than the
/// object. Stack: some KiB each.
pub const VALUE_LEVELS_MAX: usize = 256;

/// Steps of one evaluation of an expression, as many as kube-apiserver's cost: some 0.1 s. Memory: at most about a
/// hundred bytes a step, for the items of lists.
pub const CALL_STEPS_MAX: u64 = 1_000_000;

/// Steps of all evaluations for one object, as many as kube-apiserver's cost: some 1 s.
pub const OBJECT_STEPS_MAX: u64 = 10_000_000;

/// Steps of all conditions of one webhook about one write, as many as kube-apiserver's cost: some 0.3 s.
pub const CONDITIONS_STEPS_MAX: u64 = 2_500_000;

/// Steps of the other expressions of one policy about one write and parameter, as many as kube-apiserver's cost: some 1
/// s.
pub const POLICY_STEPS_MAX: u64 = 10_000_000;

/// Parameters that one binding may select for a write. Time: an evaluation of the policy for each.
pub const POLICY_PARAMETERS_MAX: usize = 1_000;

/// Bytes of a text that are read or written in one step.
pub const STEP_BYTES: usize = 10;

/// Steps for each state of a pattern that is compiled during an evaluation.
pub const PATTERN_STEPS: usize = 10;

/// Bytes of the message that an expression makes.
pub const RULE_MESSAGE_BYTES_MAX: usize = 5 << 10;

/// Digits behind the point that a format may ask for.
pub const DIGITS_MAX: usize = 100;

/// Amounts that the LimitRanges of a namespace set in one pod; a pod that would get more is refused. Memory: some hundred
/// bytes each.
pub const RANGE_DEFAULTS_MAX: usize = 16 << 10;

/// Bytes of the answer of a mutating webhook: a patch in base64 may be as long as the body of a request. Longer ones
/// fail the call. Memory: for each of [`WEBHOOK_LONG_ANSWERS_MAX`](api_rules::limits::WEBHOOK_LONG_ANSWERS_MAX).
pub const WEBHOOK_ANSWER_BYTES_MAX: usize = 4 << 20;

/// Idle connections to one admission webhook that are kept.
pub const WEBHOOK_IDLE_CONNECTIONS_MAX: usize = 8;

/// Webhooks that one write asks at once; it asks further ones once these answered. Memory: a copy of its objects for
/// each.
pub const WEBHOOKS_AT_ONCE: usize = 16;

/// Objects in one question of a conversion.
pub const CONVERTED_AT_ONCE: usize = 250;

/// Bytes of the objects in one question, but for the last one. Memory: decoded, some five times as much for each type
/// and version that is read.
pub const CONVERTED_BYTES: usize = 1 << 20;

/// Objects of [`DECODED_BYTES_MAX`](api_rules::limits::DECODED_BYTES_MAX) that the answer of a conversion may take as much
/// memory as: 96 MiB for each type and version that is read. Answers with fewer objects may take less.
pub const HEAVY_OBJECTS_MAX: usize = 4;

/// Time that a webhook has to convert the objects of one question, as in kube-apiserver.
pub const CONVERSION_TIME: Duration = Duration::from_secs(30);

/// Pause before objects that were not converted are sent again.
pub const CONVERSION_PAUSE: Duration = Duration::from_millis(500);
