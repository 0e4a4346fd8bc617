#include "cli/verify.h"

#include <fmt/color.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/device_option.h"
#include "train/reference.h"

namespace lockstep {

namespace {

struct Settings {
  std::string folder;
  Precision precision = Precision::fp64;
  int threads = 1;
  Device device = Device::cpu;
  bool json = false;
};

void print_json(const ReferenceReport& report) {
  nlohmann::ordered_json items = nlohmann::ordered_json::array();
  for (const ReferenceItem& item : report.items)
    items.push_back({{"name", item.name}, {"error", item.error}, {"tolerance", item.tolerance}, {"ok", item.ok()}});
  const nlohmann::ordered_json out{
      {"ok", report.ok()}, {"precision", name_of(report.precision)}, {"steps", report.steps}, {"items", items}};
  fmt::print("{}\n", out.dump(2));
}

void print_table(const ReferenceReport& report) {
  const bool colour = isatty(STDOUT_FILENO);
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

}  // namespace

void add_verify(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<Settings>();
  CLI::App* command = app.add_subcommand("verify", "Prove numerics against reference data");
  command->footer(
      "A reference folder holds config.json and model.safetensors (the model as Hugging Face saves it), run.json "
      "(steps,\n"
      "lr, beta1, beta2, eps, weight_decay, clip, losses and grad_norms of each step) and expected.safetensors "
      "(tokens\n"
      "[steps, batch, length + 1]; logits and grad.<name> of step 0; final.<name> after the last step).\n"
      "Exit code 0: everything within tolerance; 1: something outside.\n\n"
      "Example: lockstep verify --reference tests/golden/llama-tiny --precision fp32");
  command->add_option("--reference", settings->folder, "Folder with the reference data")->required()->type_name("DIR");
  static const std::map<std::string, Precision> kPrecisions{
      {"fp64", Precision::fp64}, {"fp32", Precision::fp32}, {"bf16", Precision::bf16}};
  command->add_option("--precision", settings->precision, "What to compute in: fp64, fp32 or bf16 [fp64]")
      ->transform(CLI::Transformer(kPrecisions).description(""))
      ->type_name("TYPE");
  command
      ->add_option("--threads", settings->threads, "Threads of the kernels; the result is the same for any number [1]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  add_device_option(*command, settings->device);
  command->add_flag("--json", settings->json, "Print {ok, precision, steps, items: [{name, error, tolerance, ok}]}");
  command->callback([settings, &chosen] {
    chosen = [settings] {
      const ReferenceReport report = verify_reference(
          settings->folder,
          {.precision = settings->precision, .threads = settings->threads, .device = settings->device});
      settings->json ? print_json(report) : print_table(report);
      return static_cast<int>(report.ok() ? ExitCode::done : ExitCode::check_failed);
    };
  });
}

}  // namespace lockstep
