#include "telemetry/rank_now.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr std::int64_t kMostWhole = std::int64_t{1} << 53;  // whole in a number of JSON

// What is not UTF-8 becomes three bytes, so the text is measured after that.
nlohmann::ordered_json text_or_null(const std::string& text) {
  if (text.empty()) return nullptr;
  using nlohmann::ordered_json;
  const std::string whole = ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::string clean = ordered_json::parse(whole).get<std::string>();
  if (clean.size() > kMostRankTextBytes) {
    std::size_t end = kMostRankTextBytes;
    while (end > 0 && (static_cast<unsigned char>(clean[end]) & 0xC0) == 0x80) --end;  // not within a character
    clean.resize(end);
  }
  return clean;
}

class RankNowReader {
 public:
  RankNowReader(std::string_view text, const std::string& where) : where_(where) {
    if (text.size() > kMostRankNowBytes)
      refuse(fmt::format("has more than the {} bytes of a rank's file", kMostRankNowBytes));
    if (text.find('\0') != std::string_view::npos) refuse("has a zero byte");  // where the parser would stop
    object_ = nlohmann::json::parse(text, nullptr, false);
    if (!object_.is_object()) refuse("is not one whole JSON object");
  }

  RankNow read() const {
    RankNow now;
    now.rank = static_cast<int>(whole_number("rank", 0, kMostRanks - 1));
    now.pid = whole_number("pid", 1, std::numeric_limits<int>::max());
    now.host = text("host");
    now.step = whole_number("step", 0, kMostWhole);
    now.doing = kind();
    now.action = text("action");
    now.group = text("group");
    now.op = text("op");
    if (!field("call").is_null()) now.call = whole_number("call", 0, kMostWhole);
    now.seconds = positive("seconds");
    now.time = positive("time");
    now.quiet = now.seconds;
    if (object_.contains("quiet")) now.quiet = std::min(now.seconds, positive("quiet"));
    if (const auto usual = object_.find("usual"); usual != object_.end() && !usual->is_null())
      now.usual = positive("usual");
    if (const nlohmann::json* cpu = part("cpu")) now.cpu = {number(*cpu, "ran_s"), number(*cpu, "waited_s")};
    if (const nlohmann::json* memory = part("memory"))
      now.memory = {bytes(*memory, "used"), bytes(*memory, "limit"), bytes(*memory, "held"), bytes(*memory, "swing")};
    if (const nlohmann::json* gpu = part("gpu"))
      now.gpu = {.sm_mhz = number(*gpu, "sm_mhz"),
                 .temperature = number(*gpu, "temperature"),
                 .throttled = texts(*gpu, "throttled"),
                 .throttled_seconds = number(*gpu, "throttled_seconds"),
                 .memory_used = bytes(*gpu, "memory_used"),
                 .memory_total = bytes(*gpu, "memory_total")};
    return now;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", where_, problem),
                    "give a rank's file of a run folder, ranks/rank-00000.now");
  }
  const nlohmann::json& field(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) refuse(fmt::format("has no {}", key));
    return *found;
  }
  std::int64_t whole_number(const char* key, std::int64_t least, std::int64_t most) const {
    const nlohmann::json& value = field(key);
    const bool fits = value.is_number_unsigned()  ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                      : value.is_number_integer() ? value.get<std::int64_t>() <= most
                                                  : false;
    if (!fits || value.get<std::int64_t>() < least)
      refuse(fmt::format("its {} is no whole number from {} to {}", key, least, most));
    return value.get<std::int64_t>();
  }
  double positive(const char* key) const {
    const nlohmann::json& value = field(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
      refuse(fmt::format("its {} is no number from 0 up", key));
    return value.get<double>();
  }
  std::string text(const char* key) const {
    const nlohmann::json& value = field(key);
    if (value.is_null()) return "";
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kMostRankTextBytes)
      refuse(fmt::format("its {} is no text of at most {} bytes", key, kMostRankTextBytes));
    return value.get<std::string>();
  }
  // Parts that a file may have: what is no such thing is nothing.
  const nlohmann::json* part(const char* key) const {
    const auto found = object_.find(key);
    return found != object_.end() && found->is_object() ? &*found : nullptr;
  }
  static double number(const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number()) return 0;
    const double value = found->get<double>();
    return std::isfinite(value) && value > 0 ? value : 0;
  }
  static std::int64_t bytes(const nlohmann::json& object, const char* key) {
    return static_cast<std::int64_t>(std::min(number(object, key), static_cast<double>(kMostWhole)));
  }
  static std::vector<std::string> texts(const nlohmann::json& object, const char* key) {
    std::vector<std::string> all;
    const auto found = object.find(key);
    if (found == object.end() || !found->is_array()) return all;
    for (const nlohmann::json& text : *found)
      if (text.is_string() && all.size() < 16) all.push_back(text.get<std::string>().substr(0, 64));
    return all;
  }
  DoingKind kind() const {
    const std::string name = text("doing");
    for (int i = 0; i < kDoingKinds; ++i)
      if (name == name_of(static_cast<DoingKind>(i))) return static_cast<DoingKind>(i);
    refuse("its doing is nothing that a rank does");
  }

  const std::string& where_;
  nlohmann::json object_;
};

}  // namespace

std::string to_json_line(const RankNow& now) {
  nlohmann::ordered_json line{
      {"rank", now.rank},
      {"pid", now.pid},
      {"host", text_or_null(now.host)},
      {"step", now.step},
      {"doing", name_of(now.doing)},
      {"action", text_or_null(now.action)},
      {"group", text_or_null(now.group)},
      {"op", text_or_null(now.op)},
      {"call", now.call < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(now.call)},
      {"seconds", now.seconds},
      {"time", now.time},
      {"quiet", std::min(now.quiet, now.seconds)},
      {"usual", now.usual ? nlohmann::ordered_json(*now.usual) : nlohmann::ordered_json(nullptr)}};
  if (now.cpu) line["cpu"] = {{"ran_s", now.cpu->ran}, {"waited_s", now.cpu->waited}};
  if (now.memory)
    line["memory"] = {{"used", now.memory->used},
                      {"limit", now.memory->limit},
                      {"held", now.memory->held},
                      {"swing", now.memory->swing}};
  if (now.gpu)
    line["gpu"] = {{"sm_mhz", now.gpu->sm_mhz},           {"temperature", now.gpu->temperature},
                   {"throttled", now.gpu->throttled},     {"throttled_seconds", now.gpu->throttled_seconds},
                   {"memory_used", now.gpu->memory_used}, {"memory_total", now.gpu->memory_total}};
  return line.dump() + "\n";
}

RankNow parse_rank_now(std::string_view text, const std::string& where) { return RankNowReader(text, where).read(); }

std::optional<RankNow> read_rank_now(const std::filesystem::path& file) {
  const auto refuse_file = [&](const char* problem, const char* remedy) {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", file.string(), problem), remedy);
  };
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  if (status.type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (!std::filesystem::is_regular_file(status)) refuse_file("is not a regular file", "name a file on a disk");
  // Read, not mapped: a foreign file may be shortened meanwhile.
  std::ifstream in(file, std::ios::binary);
  if (!in && !std::filesystem::exists(file, error) && !error) return std::nullopt;  // removed just now
  if (!in) refuse_file("cannot be opened", "check the path and give this user permission");
  std::string text(kMostRankNowBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_rank_now(text, file.string());
}

}  // namespace lockstep
