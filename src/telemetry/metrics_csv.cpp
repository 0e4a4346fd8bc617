#include "telemetry/metrics_csv.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace lockstep {

namespace {

using Cells = std::vector<std::pair<std::string, std::string>>;  // by name

// Flattens one line; numbers keep the digits that they have in the text.
class FlatLine final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Cells cells;
  bool has_step = false;

  bool null() override { return add(""); }
  bool boolean(bool value) override { return add(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return add_whole(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add_whole(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& digits) override { return add(digits); }
  bool string(string_t& value) override { return add(value); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*elements*/) override { return enter(-1); }
  bool key(string_t& name) override {
    path_.back().name = name;
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t /*elements*/) override { return !path_.empty() && enter(0); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return false;
  }

 private:
  struct Level {
    std::string name;  // of the field at hand, or its place in a list
    int place = -1;    // in a list
  };
  bool enter(int place) {
    path_.push_back({place < 0 ? "" : std::to_string(place), place});
    return true;
  }
  bool leave() {
    path_.pop_back();
    count();
    return true;
  }
  void count() {
    if (!path_.empty() && path_.back().place >= 0) path_.back().name = std::to_string(++path_.back().place);
  }
  bool add_whole(const std::string& digits) {
    has_step = has_step || (path_.size() == 1 && path_[0].name == "step");
    return add(digits);
  }
  bool add(std::string text) {
    if (path_.empty()) return false;  // a line that is no object
    std::string name = path_.front().name;
    for (std::size_t i = 1; i < path_.size(); ++i) name += "." + path_[i].name;
    cells.emplace_back(std::move(name), std::move(text));
    count();
    return true;
  }
  std::vector<Level> path_;
};

std::string cell_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string row_text(const std::vector<std::string>& cells) {
  std::string row;
  for (const std::string& cell : cells) row += (&cell == cells.data() ? "" : ",") + cell_text(cell);
  return row + "\r\n";
}

}  // namespace

MetricsCsvCounts write_metrics_csv(const std::filesystem::path& metrics,
                                   const std::function<void(std::string_view)>& write) {
  std::ifstream in(metrics, std::ios::binary);
  std::map<std::string, std::size_t> place;  // of a column
  std::vector<std::string> names;
  const auto place_of = [&](const std::string& name) {
    const auto [at, added] = place.emplace(name, names.size());
    if (added) names.push_back(name);
    return at->second;
  };
  for (const std::string_view name : kMetricsColumns) place_of(std::string(name));

  // A run may append meanwhile: the second pass ends where the first did.
  MetricsCsvCounts counts;
  std::int64_t lines = 0;
  const auto each_line = [&](const std::function<void(const FlatLine*)>& visit) {
    std::string line;
    for (std::int64_t n = 0; (lines == 0 || n < lines) && std::getline(in, line) && !in.eof(); ++n) {
      FlatLine flat;
      const bool good = nlohmann::json::sax_parse(line, &flat) && flat.has_step;
      visit(good ? &flat : nullptr);
    }
  };
  std::int64_t seen = 0;
  each_line([&](const FlatLine* flat) {
    ++seen;
    ++(flat ? counts.rows : counts.left_out);
    for (const auto& cell : flat ? flat->cells : Cells()) place_of(cell.first);
  });
  if (in.bad() || !std::filesystem::is_regular_file(metrics))
    throw UserError(ExitCode::bad_input_file, fmt::format("{} cannot be read", metrics.string()), "name a run folder");
  write(row_text(names));
  if (seen == 0) return counts;
  lines = seen;
  in.clear();
  in.seekg(0);
  std::vector<std::string> row;
  each_line([&](const FlatLine* flat) {
    if (!flat) return;
    row.assign(names.size(), "");
    for (const auto& [name, text] : flat->cells) row[place_of(name)] = text;
    write(row_text(row));
  });
  return counts;
}

}  // namespace lockstep
