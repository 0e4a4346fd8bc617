#include "telemetry/launch_state.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "telemetry/partial_file.h"

namespace lockstep {

namespace {

constexpr std::int64_t kMostWholeOfLaunch = std::int64_t{1} << 53;  // whole in a number of JSON

// What is not UTF-8 becomes three bytes, so the text is measured after that.
nlohmann::ordered_json launch_text(const std::string& text) {
  if (text.empty()) return nullptr;
  using nlohmann::ordered_json;
  const std::string whole = ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::string clean = ordered_json::parse(whole).get<std::string>();
  if (clean.size() > kMostLaunchTextBytes) {
    std::size_t end = kMostLaunchTextBytes;
    while (end > 0 && (static_cast<unsigned char>(clean[end]) & 0xC0) == 0x80) --end;  // not within a character
    clean.resize(end);
  }
  return clean;
}

// A number that is not finite has no place in JSON.
nlohmann::ordered_json launch_number(const std::optional<double>& number) {
  return number && std::isfinite(*number) ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

// The fields of one object of the file, each as what it must be.
class LaunchFields {
 public:
  LaunchFields(const nlohmann::json& object, std::string whose, const std::string& where)
      : object_(object), whose_(std::move(whose)), where_(where) {
    if (!object_.is_object()) refuse(fmt::format("{} is no JSON object", whose_));
  }

  [[noreturn]] void refuse(const std::string& problem) const {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", where_, problem),
                    "remove it if no `lockstep launch` runs there; one that does replaces it by itself");
  }
  const nlohmann::json& field(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(fmt::format("{} has no {}", whose_, key));
    return *found;
  }
  std::int64_t whole(const char* key, std::int64_t least, std::int64_t most) const {
    return whole_in(field(key), key, least, most);
  }
  std::int64_t whole_in(const nlohmann::json& value, const char* key, std::int64_t least, std::int64_t most) const {
    const bool fits = value.is_number_unsigned()  ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                      : value.is_number_integer() ? value.get<std::int64_t>() <= most
                                                  : false;
    if (!fits || value.get<std::int64_t>() < least)
      refuse(fmt::format("{}: {} is no whole number from {} to {}", whose_, key, least, most));
    return value.get<std::int64_t>();
  }
  double number(const char* key, double most = std::numeric_limits<double>::max()) const {
    const nlohmann::json& value = field(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0 ||
        value.get<double>() > most)
      refuse(fmt::format("{}: {} is no number from 0 {}", whose_, key, most == 1 ? "to 1" : "up"));
    return value.get<double>();
  }
  std::string text(const char* key) const {
    const nlohmann::json& value = field(key);
    if (value.is_null()) return "";
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kMostLaunchTextBytes)
      refuse(fmt::format("{}: {} is no text of at most {} bytes", whose_, key, kMostLaunchTextBytes));
    return value.get<std::string>();
  }
  template <class Kind>
  Kind one_of(const char* key, int kinds) const {
    const std::string name = text(key);
    for (int i = 0; i < kinds; ++i)
      if (name == name_of(static_cast<Kind>(i))) return static_cast<Kind>(i);
    refuse(fmt::format("{}: {} is none that a launch has", whose_, key));
  }
  const nlohmann::json& list(const char* key, std::size_t most) const {
    const nlohmann::json& value = field(key);
    if (!value.is_array() || value.size() > most)
      refuse(fmt::format("{}: {} is no list of at most {}", whose_, key, most));
    return value;
  }
  bool is_null(const char* key) const { return field(key).is_null(); }

 private:
  const nlohmann::json& object_;
  const std::string whose_;
  const std::string& where_;
};

LaunchedHost host_in(const LaunchFields& fields, std::size_t& ranks) {
  LaunchedHost host{.name = fields.text("name"),
                    .address = fields.text("address"),
                    .pid = fields.whole("pid", 0, std::numeric_limits<int>::max()),
                    .role = fields.one_of<HostRole>("role", kHostRoles),
                    .heard = fields.number("heard")};
  const nlohmann::json& list = fields.list("ranks", kMostLaunchRanks);
  ranks += list.size();
  if (ranks > kMostLaunchRanks) fields.refuse(fmt::format("more than {} ranks", kMostLaunchRanks));
  for (const nlohmann::json& rank : list)
    host.ranks.push_back(static_cast<int>(fields.whole_in(rank, "a rank", 0, kMostLaunchRanks - 1)));
  return host;
}

}  // namespace

std::string to_json_line(const LaunchState& state) {
  using Json = nlohmann::ordered_json;
  Json hosts = Json::array();
  for (const LaunchedHost& host : state.hosts)
    hosts.push_back({{"name", launch_text(host.name)},
                     {"address", launch_text(host.address)},
                     {"pid", host.pid},
                     {"role", name_of(host.role)},
                     {"heard", host.heard},
                     {"ranks", host.ranks}});
  Json fault = nullptr;
  if (state.fault)
    fault = {{"time", state.fault->time},
             {"step", state.fault->step},
             {"text", launch_text(state.fault->text)},
             {"cost_seconds", launch_number(state.fault->cost_seconds)}};
  const Json line{{"version", LaunchState::kVersion},
                  {"epoch", state.epoch},
                  {"state", name_of(state.state)},
                  {"leader", launch_text(state.leader)},
                  {"restarts", state.restarts},
                  {"layout", launch_text(state.layout)},
                  {"since", state.since},
                  {"hosts", std::move(hosts)},
                  {"fault", std::move(fault)},
                  {"goodput", launch_number(state.goodput)},
                  {"copy_every", state.copy_every ? Json(*state.copy_every) : Json(nullptr)}};
  return line.dump() + "\n";
}

void write_launch_state(const std::filesystem::path& path, const LaunchState& state) {
  PartialFile out(path);
  out.write(to_json_line(state));
  out.finish();
}

LaunchState parse_launch_state(std::string_view text, const std::string& where) {
  const nlohmann::json none;
  if (text.size() > kMostLaunchBytes)
    LaunchFields(nlohmann::json::object(), "it", where)
        .refuse(fmt::format("has more than the {} bytes of a launch", kMostLaunchBytes));
  // The parser would stop at a zero byte.
  const nlohmann::json object =
      text.find('\0') == std::string_view::npos ? nlohmann::json::parse(text, nullptr, false) : none;
  const LaunchFields fields(object, "it", where);
  if (const std::int64_t version = fields.whole("version", 1, kMostWholeOfLaunch); version != LaunchState::kVersion)
    fields.refuse(fmt::format("is of version {}, and this lockstep reads version {}", version, LaunchState::kVersion));
  LaunchState state{.epoch = fields.whole("epoch", 0, kMostWholeOfLaunch),
                    .state = fields.one_of<LaunchPhase>("state", kLaunchPhases),
                    .leader = fields.text("leader"),
                    .restarts = fields.whole("restarts", 0, kMostWholeOfLaunch),
                    .layout = fields.text("layout"),
                    .since = fields.number("since")};
  std::size_t ranks = 0;
  for (const nlohmann::json& host : fields.list("hosts", kMostLaunchHosts))
    state.hosts.push_back(host_in(LaunchFields(host, "a host", where), ranks));
  if (!fields.is_null("fault")) {
    const LaunchFields fault(fields.field("fault"), "its fault", where);
    state.fault = LaunchFault{
        .time = fault.number("time"), .step = fault.whole("step", 0, kMostWholeOfLaunch), .text = fault.text("text")};
    if (!fault.is_null("cost_seconds")) state.fault->cost_seconds = fault.number("cost_seconds");
  }
  if (!fields.is_null("goodput")) state.goodput = fields.number("goodput", 1);
  if (!fields.is_null("copy_every")) state.copy_every = fields.whole("copy_every", 1, kMostWholeOfLaunch);
  return state;
}

std::optional<LaunchState> read_launch_state(const std::filesystem::path& path) {
  const auto refuse_file = [&](const char* problem, const char* remedy) {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", path.string(), problem), remedy);
  };
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (!std::filesystem::is_regular_file(status)) refuse_file("is not a regular file", "name a file on a disk");
  // Read, not mapped: a foreign file may be shortened meanwhile.
  std::ifstream in(path, std::ios::binary);
  if (!in && !std::filesystem::exists(path, error) && !error) return std::nullopt;  // removed just now
  if (!in) refuse_file("cannot be opened", "check the path and give this user permission");
  std::string text;
  constexpr std::size_t kPiece = 1 << 16;
  while (in && text.size() <= kMostLaunchBytes) {
    const std::size_t had = text.size();
    text.resize(had + kPiece);
    in.read(text.data() + had, kPiece);
    text.resize(had + static_cast<std::size_t>(in.gcount()));
  }
  return parse_launch_state(text, path.string());
}

}  // namespace lockstep
