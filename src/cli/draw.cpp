#include "cli/draw.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/output_file.h"
#include "checkpoint/disk.h"
#include "cli/drawings.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

struct DrawSettings {
  std::string name, out;
  bool list = false;
};

void print_list() {
  for (const DrawingEntry& entry : drawings()) fmt::print("{:<16} {}\n", entry.name, entry.what);
}

const DrawingEntry& named(const std::string& name) {
  const auto found = std::ranges::find(drawings(), name, &DrawingEntry::name);
  if (found != drawings().end()) return *found;
  std::vector<std::string_view> names;
  for (const DrawingEntry& entry : drawings()) names.push_back(entry.name);
  throw UserError(ExitCode::usage, fmt::format("{}: there is no such picture", quote_text(name)),
                  fmt::format("did you mean '{}'? There are {}", nearest_word(name, names), fmt::join(names, ", ")));
}

int run_draw(const DrawSettings& s) {
  if (s.list) {
    print_list();
    return static_cast<int>(ExitCode::done);
  }
  if (s.name.empty()) throw UserError(ExitCode::usage, "no picture is named", "lockstep draw --list has their names");
  const DrawingEntry& entry = named(s.name);
  if (!s.out.empty()) require_output_file(s.out, fmt::format("--out {}", quote_text(s.out)));
  const std::string text = entry.draw();
  if (s.out.empty())
    fmt::print("{}", text);
  else
    replace_file(Disk(), s.out, [&](DiskFile& out) { out.write(text.data(), std::ssize(text)); });
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_draw(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<DrawSettings>();
  CLI::App* command = app.add_subcommand("draw", "Draw a picture of the documentation, as SVG");
  command->footer(
      "The pictures are drawn from what the program runs: layouts, splits, lists of actions, schedules, and plans.\n"
      "They have the same bytes on every machine. tools/draw_docs writes all of them to docs/pictures.\n\n"
      "Examples: lockstep draw --list\n"
      "          lockstep draw step-4d --out step.svg");
  CLI::Option* name = command->add_option("NAME", s->name, "Which picture; --list has their names");
  name->type_name("");
  CLI::Option* out = command->add_option("--out", s->out, "Write it to this file [standard output]");
  out->type_name("FILE");
  command->add_flag("--list", s->list, "Print the names and what each picture shows")->excludes(name)->excludes(out);
  command->callback([s, &chosen] { chosen = [s] { return run_draw(*s); }; });
}

}  // namespace lockstep
