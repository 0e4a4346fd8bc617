#include "cli/verify_view.h"

#include <fmt/color.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "spec/text/text_input.h"

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

namespace {

std::string text_of(const Difference& d) {
  return fmt::format("step {}: {} differs by {:.1e} ({} element{})", d.step, d.what, d.error, d.elements,
                     d.elements == 1 ? "" : "s");
}

// All layouts that were judged by rounding.
std::vector<const LayoutVerdict*> rounded(const LayoutReport& report) {
  std::vector<const LayoutVerdict*> all;
  if (report.itself && report.itself->rounding) all.push_back(&*report.itself);
  for (const LayoutVerdict& v : report.verdicts)
    if (v.rounding) all.push_back(&v);
  return all;
}

// How small an error shows despite rounding, and what would show a smaller one.
std::string sight_of(const LayoutReport& report) {
  const RoundingVerdict* bluntest = nullptr;
  for (const LayoutVerdict* v : rounded(report))
    if (!bluntest || v->rounding->sees_at_worst > bluntest->sees_at_worst) bluntest = &*v->rounding;
  if (!bluntest) return "";
  return fmt::format("an error of {:.0e} of a gradient would show ({:.0e} in {}); --precision fp64 shows 1e-11\n",
                     bluntest->sees, bluntest->sees_at_worst, bluntest->bluntest);
}

}  // namespace

void print_table(const LayoutReport& report, const LayoutSpec& first, bool exact) {
  std::size_t width = to_text(first).size();
  for (const LayoutVerdict& v : report.verdicts) width = std::max(width, to_text(v.layout).size());
  const bool by_rounding = !rounded(report).empty();
  fmt::print("{:<{}}  {:>9}  {:>9}  {:>9}  {:>9}{}\n", "layout", width, "loss", "gradients", "norm", "weights",
             by_rounding ? "  of allowed" : "");
  const auto rest = [&](const LayoutVerdict& v) {
    if (v.rounding) fmt::print("  {:>10.2f}", v.rounding->share);
    if (v.first) fmt::print("  {}", text_of(*v.first));
    if (v.undecided)
      fmt::print("  {} cannot decide: {}; equal in fp64", name_of(report.precision), text_of(*v.undecided));
    fmt::print("\n");
  };
  fmt::print("{:<{}}  {:<42}", to_text(first), width, "what the others are compared with");
  rest(report.itself ? *report.itself : LayoutVerdict{.layout = first});
  for (const LayoutVerdict& v : report.verdicts) {
    fmt::print("{:<{}}  {:>9.1e}  {:>9.1e}  {:>9.1e}  {:>9.1e}", to_text(v.layout), width, v.loss, v.gradient, v.norm,
               v.weight);
    rest(v);
  }
  const std::string how = exact         ? "to the bit"
                          : by_rounding ? "but for rounding"
                                        : fmt::format("within {:.0e}", report.verdicts[0].tolerance);
  fmt::print("{} {} in {}: {} layouts over {} steps, {} tensors, last loss {:.6f}\n",
             report.ok() ? "equal" : "not equal", how, name_of(report.precision), report.verdicts.size() + 1,
             report.steps, report.tensors, report.last_loss);
  if (!exact) fmt::print("{}", sight_of(report));
}

void print_json(const LayoutReport& report, const LayoutSpec& first) {
  using Json = nlohmann::ordered_json;
  const auto difference = [](const std::optional<Difference>& d) -> Json {
    if (!d) return nullptr;
    return {{"step", d->step}, {"what", d->what}, {"error", d->error}, {"elements", d->elements}};
  };
  const auto item = [&](const LayoutVerdict& v) -> Json {
    Json one{{"layout", to_text(v.layout)}, {"ok", !v.first}, {"loss", v.loss},
             {"gradients", v.gradient},     {"norm", v.norm}, {"weights", v.weight}};
    if (v.rounding) {
      one["of_allowed"] = v.rounding->share;
      one["sees"] = v.rounding->sees;
      one["sees_at_worst"] = v.rounding->sees_at_worst;
      one["bluntest"] = v.rounding->bluntest;
      one["undecided"] = difference(v.undecided);
    } else {
      one["tolerance"] = v.tolerance;
    }
    one["first"] = difference(v.first);
    return one;
  };
  Json items = Json::array();
  for (const LayoutVerdict& v : report.verdicts) items.push_back(item(v));
  Json out{{"ok", report.ok()},         {"precision", name_of(report.precision)},
           {"steps", report.steps},     {"tensors", report.tensors},
           {"against", to_text(first)}, {"layouts", items}};
  if (report.itself) out["itself"] = item(*report.itself);
  fmt::print("{}\n", out.dump(2));
}

void print_table(const StoryCount& count) {
  fmt::print("{} of {} sentences are in the grammar ({:.1f}%), {} of {} stories hold together\n", count.accepted,
             count.sentences, 100 * count.share(), count.whole, count.stories);
  if (!count.first_refused.empty()) fmt::print("the first that is not: {}\n", quote_text(count.first_refused));
}

void print_json(const StoryCount& count) {
  const nlohmann::ordered_json out{{"sentences", count.sentences}, {"accepted", count.accepted},
                                   {"share", count.share()},       {"stories", count.stories},
                                   {"whole", count.whole},         {"first_refused", count.first_refused}};
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_table(const TokenizerCases& report) {
  if (report.ok())
    fmt::print("{} cases: ids and decoded texts are equal\n", report.cases);
  else
    fmt::print("{} of {} cases differ; the first: {}\n", report.differ, report.cases, report.first);
}

void print_json(const TokenizerCases& report) {
  const nlohmann::ordered_json out{{"cases", report.cases}, {"differ", report.differ}, {"first", report.first}};
  fmt::print("{}\n", out.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace lockstep
