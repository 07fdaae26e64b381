//! The FlowSchemas in force, with what each request of them needs.

use std::sync::Arc;

use access_rules::{
    flow::{
        config::FlowConfig,
        levels::{LevelId, PriorityLevels},
        objects::FlowSchema,
    },
    request_info::RequestInfo,
    user::User,
};
use http::HeaderValue;

use super::measures::{FlowMeasures, SchemaMeasures};

/// The schemas in force. Replaced as a whole.
pub(super) struct FlowRules {
    config: FlowConfig,
    /// In the order of the configuration.
    schemas: Vec<Arc<SchemaRules>>,
}

/// One schema, and the level of its requests.
pub struct SchemaRules {
    pub(super) schema: FlowSchema,
    /// Level, and seats that one request may have at most; `None` for exempt requests.
    pub(super) level: Option<(LevelId, u32)>,
    pub(super) measures: SchemaMeasures,
    pub(super) headers: FlowHeaders,
}

/// Uids of the schema and the level of a request, for its response; `None` for objects that are stored nowhere.
#[derive(Clone, Debug, Default)]
pub struct FlowHeaders {
    pub schema: Option<HeaderValue>,
    pub level: Option<HeaderValue>,
}

impl FlowRules {
    pub(super) fn new(config: FlowConfig, levels: &PriorityLevels, measures: &Arc<FlowMeasures>) -> Self {
        let uid = |uid: &str| Some(uid).filter(|uid| !uid.is_empty()).and_then(|uid| HeaderValue::from_str(uid).ok());
        let schemas = config.schemas().iter().map(|schema| {
            let level = if schema.is_exempt() { None } else { levels.find(&schema.level) };
            let level_uid = config.levels().get(&schema.level).and_then(|level| uid(&level.uid));
            let headers = FlowHeaders { schema: uid(&schema.uid), level: level_uid };
            let measures = measures.of_schema(&schema.name, &schema.level);
            Arc::new(SchemaRules { schema: schema.clone(), level, measures, headers })
        });
        let schemas = schemas.collect();
        Self { config, schemas }
    }

    /// Returns the schema that a request belongs to.
    pub(super) fn classify(&self, user: &User, info: &RequestInfo) -> &Arc<SchemaRules> {
        &self.schemas[self.config.classify(user, info)]
    }

    /// Returns the names of all schemas, each with its level.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.schemas.iter().map(|rules| (&*rules.schema.name, &*rules.schema.level))
    }
}
