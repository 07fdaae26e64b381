//! Named formats of texts: `format.dns1123Label().validate(text)`.

use api_rules::registry::NameRule;
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{net::Url, times, value::CelValue};

/// Names of the formats.
pub(super) const NAMES: [&str; 11] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

/// Returns the errors of a text; no value if it has the format.
pub(super) fn validate<'a>(format: &str, text: &str) -> CelValue<'a> {
    let refused = |is_valid: bool, why: &str| if is_valid { Vec::new() } else { vec![why.to_owned()] };
    let errors = match format {
        "dns1123Label" => NameRule::Label.refuse(text),
        "dns1123Subdomain" => NameRule::Subdomain.refuse(text),
        "dns1035Label" => NameRule::ServiceLabel.refuse(text),
        "dns1123LabelPrefix" => NameRule::Label.refuse_base(text),
        "dns1123SubdomainPrefix" => NameRule::Subdomain.refuse_base(text),
        "dns1035LabelPrefix" => NameRule::ServiceLabel.refuse_base(text),
        "uri" => Url::parse(text).err().into_iter().collect(),
        "uuid" => refused(is_uuid(text), "does not match the UUID format"),
        "byte" => refused(STANDARD.decode(text).is_ok(), "invalid base64"),
        "date" => refused(times::parse_date(text).is_ok(), "invalid date"),
        _ => refused(times::parse_timestamp(text).is_ok(), "invalid datetime"),
    };
    if errors.is_empty() {
        return CelValue::Optional(None);
    }
    CelValue::some(CelValue::list(errors.into_iter().map(CelValue::text).collect()))
}

fn is_uuid(text: &str) -> bool {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    digits.len() == 32 && digits.chars().all(|digit| digit.is_ascii_hexdigit())
}
