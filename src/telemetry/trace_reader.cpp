// Reads traces in one pass over the text, whose form decides what is kept.
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/mapped_file.h"
#include "telemetry/trace.h"

namespace lockstep {

namespace {

using nlohmann::json;

constexpr std::size_t kMostNameBytes = 4096, kMostLayoutBytes = 1 << 16, kMostScheduleBytes = 1 << 26;
constexpr double kMostSteps = 9e15;  // whole in a number of JSON
constexpr double kMostPositions = 1 << 30;

[[noreturn]] void refuse_trace(const std::string& where, const std::string& problem) {
  throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", where, problem),
                  "give a trace that lockstep has written");
}

// What is found where a text or a number is expected. `Other`: anything else, or the same key twice.
struct Other {};
using Value = std::variant<std::monostate, std::string, double, Other>;

const std::string* text_of(const Value& value) { return std::get_if<std::string>(&value); }

// A whole number from `least` to `most`.
std::optional<std::int64_t> whole(const Value& value, double least, double most) {
  const double* number = std::get_if<double>(&value);
  if (!number || !(*number >= least && *number <= most) || std::floor(*number) != *number) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

// Takes the parser's events. Only the places of the file that mean something have a state; everything else is skipped,
// however deep. An event's fields come in any order, so whether it is one of ours is known only at its end.
class TraceReader final : public nlohmann::json_sax<json> {
 public:
  explicit TraceReader(std::string where) : where_(std::move(where)) {}

  Trace read(std::string_view text) {
    if (text.find('\0') != std::string_view::npos) refuse("has a zero byte");  // where the parser would stop
    json::sax_parse(text.begin(), text.end(), this);
    if (!text_of(fields_of_file_[kFormat]) || *text_of(fields_of_file_[kFormat]) != "lockstep trace")
      refuse("is not a trace of lockstep");
    if (!whole(fields_of_file_[kVersion], 1, 1)) refuse("is a trace of another version");
    if (!events_seen_) refuse("has no traceEvents");
    trace_.layout = text_of_file(kLayout, "layout", kMostLayoutBytes);
    trace_.schedule = text_of_file(kSchedule, "schedule", kMostScheduleBytes);
    for (const TraceSpan& span : trace_.spans)
      if (!trace_.stage_of.empty() && span.rank >= static_cast<int>(trace_.stage_of.size()))
        refuse(fmt::format("has an event of rank {} among {} ranks", span.rank, trace_.stage_of.size()));
    return std::move(trace_);
  }

  bool start_object(std::size_t) override {
    if (skipped_ > 0) return skip();
    switch (state_) {
      case State::outside:
        return enter(State::file);
      case State::file:
        if (events_next_) refuse("its traceEvents are not a list");
        return other_next_ ? enter(State::other) : skip();
      case State::events:
        fields_ = {};
        ++events_;
        return enter(State::event);
      case State::event:
        return arguments_next_ ? enter(State::arguments) : skip();
      default:
        return skip();
    }
  }
  bool start_array(std::size_t) override {
    if (skipped_ > 0) return skip();
    if (state_ == State::outside) refuse("is not a trace of lockstep");
    if (state_ == State::file && events_next_) return enter(State::events);
    if (state_ == State::other && stages_next_) return enter(State::stages);
    return skip();
  }
  bool end_object() override {
    if (state_ == State::event && skipped_ == 0) finish_event();
    return leave();
  }
  bool end_array() override { return leave(); }

  bool key(std::string& text) override {
    if (skipped_ > 0) return true;
    slot_ = nullptr;
    switch (state_) {
      case State::file:
        events_next_ = text == "traceEvents";
        other_next_ = text == "otherData";
        if ((events_next_ && std::exchange(events_seen_, true)) || (other_next_ && std::exchange(other_seen_, true)))
          refuse("has its " + text + " twice");
        break;
      case State::event:
        arguments_next_ = text == "args";
        slot_ = named(text, kEventFields, fields_);
        break;
      case State::arguments:
        slot_ = named(text, kArgumentFields, fields_);
        break;
      case State::other:
        stages_next_ = text == "stage_of";
        if (stages_next_ && std::exchange(stages_seen_, true)) refuse("has its stage_of twice");
        slot_ = named(text, kFileFields, fields_of_file_);
        break;
      default:
        break;
    }
    return true;
  }

  bool string(std::string& text) override { return value(std::move(text)); }
  bool number_unsigned(std::uint64_t number) override { return value(static_cast<double>(number)); }
  bool number_integer(std::int64_t number) override { return value(static_cast<double>(number)); }
  bool number_float(double number, const std::string&) override { return value(number); }
  bool null() override { return value(Other{}); }
  bool boolean(bool) override { return value(Other{}); }
  bool binary(json::binary_t&) override { return value(Other{}); }
  bool parse_error(std::size_t place, const std::string&, const json::exception&) override {
    refuse(fmt::format("is not a whole JSON file, at byte {}", place));
  }

 private:
  enum class State { outside, file, events, event, arguments, other, stages };
  enum Field { kPhase, kCategory, kName, kPid, kTid, kBegin, kLength, kStep, kPosition, kMicro, kFields };
  enum FileField { kFormat, kVersion, kLayout, kSchedule, kFileFieldCount };
  template <std::size_t N>
  using Names = std::array<std::pair<std::string_view, int>, N>;
  static constexpr Names<7> kEventFields = {{{"ph", kPhase},
                                             {"cat", kCategory},
                                             {"name", kName},
                                             {"pid", kPid},
                                             {"tid", kTid},
                                             {"ts", kBegin},
                                             {"dur", kLength}}};
  static constexpr Names<3> kArgumentFields = {{{"step", kStep}, {"position", kPosition}, {"micro", kMicro}}};
  static constexpr Names<4> kFileFields = {
      {{"format", kFormat}, {"version", kVersion}, {"layout", kLayout}, {"schedule", kSchedule}}};

  template <std::size_t M, std::size_t N>
  static Value* named(const std::string& key, const Names<M>& names, std::array<Value, N>& values) {
    for (const auto& [name, field] : names)
      if (key == name) return &values[static_cast<std::size_t>(field)];
    return nullptr;
  }

  [[noreturn]] void refuse(const std::string& problem) const { refuse_trace(where_, problem); }
  [[noreturn]] void refuse_event(const std::string& problem) const {
    refuse(fmt::format("event {} {}", events_, problem));
  }

  bool enter(State state) {
    state_ = state;
    slot_ = nullptr;
    return true;
  }
  // Into an object or list that means nothing; where a value belongs it is none.
  bool skip() {
    if (skipped_ == 0) value(Other{});
    ++skipped_;
    return true;
  }
  bool leave() {
    if (skipped_ > 0) {
      --skipped_;
      return true;
    }
    constexpr State kAround[] = {State::outside, State::outside, State::file, State::events,
                                 State::event,   State::file,    State::other};
    return enter(kAround[static_cast<int>(state_)]);
  }

  bool value(Value&& found) {
    if (skipped_ > 0) return true;
    if (state_ == State::outside) refuse("is not a trace of lockstep");
    if (state_ == State::file && (events_next_ || other_next_)) refuse("its traceEvents or otherData are a value");
    if (state_ == State::other && stages_next_) refuse("its stage_of is not a list");
    if (state_ == State::stages) {
      const auto stage = whole(found, 0, kMostTraceRanks - 1);
      if (!stage || trace_.stage_of.size() == static_cast<std::size_t>(kMostTraceRanks))
        refuse("its stage_of is not a list of stages");
      trace_.stage_of.push_back(static_cast<int>(*stage));
    }
    if (!slot_) return true;
    if (std::holds_alternative<std::monostate>(*slot_))
      *slot_ = std::move(found);
    else
      slot_->emplace<Other>();
    return true;
  }

  std::string text_of_file(FileField field, const char* name, std::size_t most) const {
    const std::string* text = text_of(fields_of_file_[field]);
    if (!text || text->size() > most)
      refuse(fmt::format("its {} is missing, or no text of at most {} bytes", name, most));
    return *text;
  }

  // Phase and category tell whether it is one of ours; then every field must be right.
  void finish_event() {
    const std::string *phase = text_of(fields_[kPhase]), *category = text_of(fields_[kCategory]);
    if (!phase || *phase != "X" || !category) return;
    int kind = 0;
    while (kind < kSpanKinds && *category != name_of(static_cast<SpanKind>(kind))) ++kind;
    if (kind == kSpanKinds) return;
    const std::string* name = text_of(fields_[kName]);
    const auto pid = whole(fields_[kPid], 1, kMostTraceRanks), step = whole(fields_[kStep], 0, kMostSteps);
    const auto position = whole(fields_[kPosition], 0, kMostPositions),
               micro = whole(fields_[kMicro], 0, kMostPositions);
    if (!name || name->size() > kMostNameBytes) refuse_event("has no name, or one that is too long");
    if (!pid) refuse_event("has no pid of a rank");
    if (!whole(fields_[kTid], kind + 1, kind + 1)) refuse_event("does not have the tid of its cat");
    if (!step) refuse_event("has no step of training");
    if (!position && !std::holds_alternative<std::monostate>(fields_[kPosition])) refuse_event("has a bad position");
    if (!micro && !std::holds_alternative<std::monostate>(fields_[kMicro])) refuse_event("has a bad micro");
    const std::int64_t begin = nanoseconds(kBegin, "ts"), length = nanoseconds(kLength, "dur");
    trace_.spans.push_back({.name = *name,
                            .kind = static_cast<SpanKind>(kind),
                            .rank = static_cast<int>(*pid) - 1,
                            .step = *step,
                            .position = static_cast<int>(position.value_or(-1)),
                            .begin = static_cast<double>(begin) * 1e-9,
                            .end = static_cast<double>(begin + length) * 1e-9,
                            .micro = static_cast<int>(micro.value_or(-1))});
  }
  // Whole nanoseconds, so that spans that touch in the file touch here.
  std::int64_t nanoseconds(Field field, const char* name) const {
    const double* time = std::get_if<double>(&fields_[field]);
    if (!time || !(*time >= 0 && *time <= kLongestTrace * 1e6))
      refuse_event(fmt::format("has no {} from 0 to {:g}", name, kLongestTrace * 1e6));
    return std::llround(*time * 1e3);
  }

  std::string where_;
  Trace trace_;
  State state_ = State::outside;
  std::int64_t skipped_ = 0;  // how deep within what means nothing
  std::int64_t events_ = 0;
  bool events_next_ = false, other_next_ = false, arguments_next_ = false, stages_next_ = false;
  bool events_seen_ = false, other_seen_ = false, stages_seen_ = false;
  std::array<Value, kFields> fields_;
  std::array<Value, kFileFieldCount> fields_of_file_;
  Value* slot_ = nullptr;  // where the next value belongs
};

}  // namespace

Trace parse_trace(std::string_view text, const std::string& where) { return TraceReader(where).read(text); }

Trace read_trace(const std::filesystem::path& file) {
  const MappedFile mapped(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  if (std::ssize(bytes) > kMostTraceBytes)
    refuse_trace(file.string(), fmt::format("has {} bytes, and a trace at most {}", bytes.size(), kMostTraceBytes));
  return parse_trace({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
}

}  // namespace lockstep
