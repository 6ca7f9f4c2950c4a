//! What does a view's name stand for? Its query, bound anew for each statement that names it.

use super::Binder;
use crate::expr::Params;
use crate::parse::{self, Statement};
use crate::plan::QueryPlan;
use crate::wire::Field;
use homenode_engine::ViewDefinition;
use homenode_types::{Error, Result, SqlState};
use std::sync::Arc;

impl Binder<'_> {
    /// The plan of a view's query, with the view's columns as its output.
    pub fn view(&self, view: &ViewDefinition) -> Result<Arc<QueryPlan>> {
        // Names of the statement around mean nothing to the view.
        let outside = self.ctes.take();
        self.views.set(self.views.get() + 1);
        // What the view reads it reads with its owner's rights.
        let acting = self.acting.replace(Some(self.definitions.owner(view.oid)));
        let named = self.named.replace(Some(view.depends.clone()));
        let bound = self.view_query(&view.query);
        self.named.replace(named);
        self.acting.set(acting);
        self.views.set(self.views.get() - 1);
        self.ctes.replace(outside);
        let plan = bound.map_err(|mut error| {
            // A place in the view's text is none in the statement's.
            error.position = None;
            error
        })?;
        let places = places(&plan, view)?;
        let fields = view.columns.iter().enumerate().map(|(place, (name, ty))| Field {
            table: view.oid,
            attribute: place as i16 + 1,
            ..Field::computed(name.clone(), *ty)
        });
        let output = places.iter().map(|&place| plan.output[place].clone()).collect();
        Ok(Arc::new(QueryPlan { input: plan.input.clone(), width: plan.width, output, fields: fields.collect() }))
    }

    fn view_query(&self, text: &str) -> Result<Arc<QueryPlan>> {
        let mut tokens = Vec::new();
        crate::lexer::lex(text, &mut tokens)?;
        let Statement::Query(query) = parse::parse(text, &tokens)? else {
            return Err(Error::internal("a view is not a query"));
        };
        let mut params = Params::new(Vec::new());
        let (plan, _) = self.query(&query, None, &mut params, false)?;
        if !params.types.is_empty() {
            return Err(Error::new(SqlState::UNDEFINED_PARAMETER, "there is no parameter $1"));
        }
        Ok(plan)
    }
}

/// Where the view's columns are among the query's. A `*` may stand for more columns now than when the view was made; they are told
/// apart by their names then, or not at all.
fn places(plan: &QueryPlan, view: &ViewDefinition) -> Result<Vec<usize>> {
    let names: Vec<&str> = plan.fields.iter().map(|field| field.name.as_str()).collect();
    let mut places = Vec::with_capacity(view.sources.len());
    for (number, source) in view.sources.iter().enumerate() {
        let before = view.sources[..number].iter().filter(|other| *other == source).count();
        let wanted = view.sources.iter().filter(|other| *other == source).count();
        let mut found = (0..names.len()).filter(|&place| names[place] == source);
        let place = found.clone().nth(before);
        match place {
            Some(place)
                if found.by_ref().count() == wanted && plan.fields[place].ty.ty == view.columns[number].1.ty =>
            {
                places.push(place);
            }
            _ => {
                let message =
                    format!("view \"{}\" has to be made anew: the tables that it reads have changed", view.name);
                return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
            }
        }
    }
    Ok(places)
}
