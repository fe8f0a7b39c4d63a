//! A log line in the form of klog's text, or of Kubernetes' JSON (scheduler.md 8).

use std::fmt;

use jiff::{Timestamp, Zoned};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::Format;
use super::fields::{Fields, Verbosity, json, quoted};

/// Writes events, as far as they are not more verbose than asked for. An event without a field `v` has the verbosity of its level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    pub(super) format: Format,
    pub(super) verbosity: i32,
}

/// Writes the fields of spans, which follow those of each event within.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanFields(pub(super) Format);

impl<'writer> FormatFields<'writer> for SpanFields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut found = Fields::new(self.0);
        fields.record(&mut found);
        writer.write_str(&found.others)
    }
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut verbosity = Verbosity::default();
        event.record(&mut verbosity);
        let level = *event.metadata().level();
        let v = verbosity.of(level);
        if v > i64::from(self.verbosity) {
            return Ok(());
        }
        let mut fields = Fields::new(self.format);
        event.record(&mut fields);
        let (file, line) = place(event, &fields);
        match self.format {
            Format::Text => {
                head(&mut writer, level, &file, line)?;
                write!(writer, "{}{}", quoted(&fields.message), fields.error)?;
            }
            Format::Json => {
                json_head(&mut writer, &file, line, &fields.message)?;
                writer.write_str(&fields.error)?;
                match level {
                    Level::ERROR => {}
                    Level::WARN => writer.write_str(r#","v":0,"severity":"warning""#)?,
                    _ => write!(writer, r#","v":{v}"#)?,
                }
            }
        }
        writer.write_str(&fields.others)?;
        for span in context.event_scope().into_iter().flatten() {
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                writer.write_str(&fields.fields)?;
            }
        }
        if self.format == Format::Json {
            writer.write_str("}")?;
        }
        writeln!(writer)
    }
}

/// Returns where an event is logged: path of the file and number of the line.
fn place(event: &Event<'_>, fields: &Fields) -> (String, u32) {
    let metadata = event.metadata();
    match &fields.file {
        // the event of a library that logs by the package `log`
        Some(file) => (file.clone(), fields.line),
        None => (
            metadata.file().unwrap_or("unknown").to_owned(),
            metadata.line().unwrap_or_default(),
        ),
    }
}

/// Writes the header of klog: severity, date, local time, process, file and line.
fn head(writer: &mut Writer<'_>, level: Level, file: &str, line: u32) -> fmt::Result {
    let severity = match level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let file = file.rsplit('/').next().unwrap_or(file);
    let (now, process) = (Zoned::now(), std::process::id());
    let time = now.strftime("%m%d %H:%M:%S.%6f");
    write!(writer, "{severity}{time} {process:>7} {file}:{line}] ")
}

/// Writes the beginning of a JSON object: milliseconds since the epoch, folder, file and line, message.
fn json_head(writer: &mut Writer<'_>, file: &str, line: u32, message: &str) -> fmt::Result {
    let time = Timestamp::now().as_nanosecond() as f64 / 1e6;
    let end = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    let caller = json(&format!("{}:{line}", &file[end..]));
    let message = json(message);
    write!(writer, r#"{{"ts":{time},"caller":{caller},"msg":{message}"#)
}
