#include "cli/verify_view.h"

#include <fmt/color.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/terminal.h"

namespace lockstep {

void print_json(const ReferenceReport& report) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  for (const ReferenceItem& item : report.items)
    items.push_back({{"name", item.name}, {"error", item.error}, {"tolerance", item.tolerance}, {"ok", item.ok()}});
  const nlohmann::ordered_json out{
      {"ok", report.ok()}, {"precision", name_of(report.precision)}, {"steps", report.steps}, {"items", items}};
  fmt::print("{}\n", out.dump(2));
}

void print_table(const ReferenceReport& report) {
  const bool colour = takes_colour(STDOUT_FILENO);
  std::size_t width = 4, failed = 0;
  for (const ReferenceItem& item : report.items) width = std::max(width, item.name.size());
  fmt::print("{:<{}}  {:>9}  {:>9}\n", "item", width, "error", "tolerance");
  for (const ReferenceItem& item : report.items) {
    fmt::print("{:<{}}  {:>9.1e}  {:>9.0e}", item.name, width, item.error, item.tolerance);
    if (!item.ok()) {
      ++failed;
      fmt::print("  {}", colour ? fmt::format(fmt::fg(fmt::terminal_color::red), "outside") : "outside");
    }
    fmt::print("\n");
  }
  if (failed == 0)
    fmt::print("equal to the reference in {}: {} items over {} steps, all within tolerance\n",
               name_of(report.precision), report.items.size(), report.steps);
  else
    fmt::print("not equal to the reference in {}: {} of {} items outside tolerance\n", name_of(report.precision),
               failed, report.items.size());
}

void print_table(const LayoutReport& report, const LayoutSpec& first, bool exact) {
  std::size_t width = to_text(first).size();
  for (const LayoutVerdict& v : report.verdicts) width = std::max(width, to_text(v.layout).size());
  fmt::print("{:<{}}  {:>9}  {:>9}  {:>9}  {:>9}\n", "layout", width, "loss", "gradients", "norm", "weights");
  fmt::print("{:<{}}  {}\n", to_text(first), width, "what the others are held against");
  for (const LayoutVerdict& v : report.verdicts) {
    fmt::print("{:<{}}  {:>9.1e}  {:>9.1e}  {:>9.1e}  {:>9.1e}", to_text(v.layout), width, v.loss, v.gradient, v.norm,
               v.weight);
    if (v.first)
      fmt::print("  step {}: {} differs by {:.1e} ({} element{})", v.first->step, v.first->what, v.first->error,
                 v.first->elements, v.first->elements == 1 ? "" : "s");
    fmt::print("\n");
  }
  const std::size_t failed = static_cast<std::size_t>(
      std::ranges::count_if(report.verdicts, [](const LayoutVerdict& v) { return v.first.has_value(); }));
  const std::string how = exact ? "to the bit" : fmt::format("within {:.0e}", report.verdicts[0].tolerance);
  fmt::print("{} {} in {}: {} layout{} over {} steps, {} tensors, last loss {:.6f}\n",
             failed == 0 ? "equal" : "not equal", how, name_of(report.precision), report.verdicts.size() + 1,
             report.verdicts.empty() ? "" : "s", report.steps, report.tensors, report.last_loss);
}

void print_json(const LayoutReport& report, const LayoutSpec& first) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  for (const LayoutVerdict& v : report.verdicts) {
    nlohmann::ordered_json item{{"layout", to_text(v.layout)}, {"ok", !v.first},  {"loss", v.loss},
                                {"gradients", v.gradient},     {"norm", v.norm},  {"weights", v.weight},
                                {"tolerance", v.tolerance},    {"first", nullptr}};
    if (v.first)
      item["first"] = {
          {"step", v.first->step}, {"what", v.first->what}, {"error", v.first->error}, {"elements", v.first->elements}};
    items.push_back(std::move(item));
  }
  const nlohmann::ordered_json out{{"ok", report.ok()},         {"precision", name_of(report.precision)},
                                   {"steps", report.steps},     {"tensors", report.tensors},
                                   {"against", to_text(first)}, {"layouts", items}};
  fmt::print("{}\n", out.dump(2));
}

}  // namespace lockstep
