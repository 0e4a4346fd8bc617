#include "cli/verify.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "cli/device_option.h"
#include "cli/run_arguments.h"
#include "cli/usage_error.h"
#include "cli/verify_view.h"
#include "data/tokenizer/tokenizer_cases.h"
#include "spec/layout/layout_toml.h"
#include "spec/text/text_input.h"

namespace lockstep {

namespace {

struct VerifySettings {
  RunArguments run;
  std::string folder, stories, tokenizer;
  std::vector<std::string> layouts;
  std::optional<Precision> precision;
  int threads = 1;
  Device device = Device::cpu;
  TrialOptions trial;
  double least = 1;  // of a text's sentences
  bool json = false;
};

constexpr std::size_t kMostStoryText = 1 << 28;

int exit_code(bool ok) { return static_cast<int>(ok ? ExitCode::done : ExitCode::check_failed); }

int against_reference(const VerifySettings& s) {
  if (!s.run.file.empty() || !s.run.sets.empty())
    refuse("a run file or --set beside --reference, which brings its own model and batches",
           "leave one of the two out");
  if (s.trial.exact) refuse("--exact beside --reference: other programs have other orders of sums", "leave it out");
  if (s.layouts.size() > 1) refuse("several --layout beside --reference", "give one");
  const LayoutSpec layout = s.layouts.empty() ? LayoutSpec{} : parse_layout(s.layouts[0]);
  const ReferenceReport report = verify_reference(
      s.folder,
      {.precision = s.precision.value_or(Precision::fp64), .threads = s.threads, .device = s.device, .layout = layout});
  s.json ? print_json(report) : print_table(report);
  return exit_code(report.ok());
}

int against_each_other(const VerifySettings& s) {
  std::vector<LayoutSpec> layouts;
  if (s.layouts.size() == 1) layouts.emplace_back();  // one rank
  for (const std::string& text : s.layouts) layouts.push_back(parse_layout(text, s.run.layout_sets()));
  RunArguments arguments = s.run;
  if (s.precision) arguments.sets.push_back(fmt::format("precision.compute={}", name_of(*s.precision)));
  arguments.sets.push_back(fmt::format("run.threads={}", s.threads));
  RunSpec run = arguments.read_for_any_layout();
  for (const LayoutSpec& layout : layouts) refuse_unflushed(layout);
  if (run.sync.changes_numbers())
    refuse("[sync] changes what is learned, so layouts are not equal under it", "leave [sync] out");
  if (s.device == Device::cuda) run.run.device = RunDevice::cuda;
  const LayoutReport report = compare_layouts(run, layouts, s.trial);
  s.json ? print_json(report, layouts[0]) : print_table(report, layouts[0], s.trial.exact);
  return exit_code(report.ok());
}

int stories_of(const VerifySettings& s) {
  if (!s.run.file.empty() || !s.run.sets.empty() || !s.layouts.empty() || !s.folder.empty())
    refuse("a run, --layout or --reference beside --stories, which reads a text alone", "leave one of the two out");
  if (!(s.least >= 0 && s.least <= 1))
    refuse(fmt::format("--least {}: it is no share from 0 to 1", s.least), "give a share, as in --least 0.9");
  const StoryCount count = count_stories(read_text_file(s.stories, kMostStoryText, ExitCode::bad_input_file));
  if (count.sentences == 0)
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: there is no whole sentence in it", s.stories),
                    "name a file with text, such as what `lockstep generate` printed");
  s.json ? print_json(count) : print_table(count);
  return exit_code(count.share() >= s.least);
}

int cases_of(const VerifySettings& s) {
  if (!s.run.file.empty() || !s.run.sets.empty() || !s.layouts.empty() || !s.folder.empty() || !s.stories.empty())
    refuse("a run, --layout, --reference or --stories beside --tokenizer, which reads a tokenizer alone",
           "leave one of the two out");
  const std::filesystem::path folder = s.tokenizer;
  const TokenizerCases report = check_tokenizer_cases(Tokenizer::load(folder), folder / "cases.json");
  s.json ? print_json(report) : print_table(report);
  return exit_code(report.ok());
}

int verify(const VerifySettings& s) {
  if (!s.tokenizer.empty()) return cases_of(s);
  if (!s.stories.empty()) return stories_of(s);
  if (!s.folder.empty()) return against_reference(s);
  if (s.layouts.empty())
    refuse("verify needs something to compare a run with",
           "give --reference DIR, --stories FILE, --tokenizer DIR, or --layout as in --layout dp=4");
  return against_each_other(s);
}

}  // namespace

void add_verify(CLI::App& app, std::function<int()>& chosen) {
  auto settings = std::make_shared<VerifySettings>();
  CLI::App* command = app.add_subcommand("verify", "Prove numerics: layouts against each other, or reference data");
  command->footer(
      "With --layout, given once or several times, a run trains a few steps under each layout from one seed, its ranks "
      "as\nthreads. Losses, gradients and weights are compared with the first layout's (one rank's, where only one is "
      "given);\nthe first that differs is named. A key that a layout does not name has its default, whatever "
      "the run file says.\n"
      "In fp64 they must agree to 1e-11. In fp32, bf16 and fp16 each layout may be as far from one rank in fp64 as\n"
      "rounding takes one rank in that precision, step by step (docs/numerics.md); where that cannot decide, fp64 "
      "does, "
      "by\nitself.\n\n"
      "A reference folder holds config.json and model.safetensors (the model as Hugging Face saves it), run.json "
      "(steps,\n"
      "lr, beta1, beta2, eps, weight_decay, clip, losses and grad_norms of each step) and expected.safetensors "
      "(tokens\n"
      "[steps, batch, length + 1]; logits and grad.<name> of step 0; final.<name> after the last step).\n"
      "--stories counts the sentences of a text, as a model of the built-in example writes them, that are in the "
      "grammar\nof its stories, and the stories, set apart by empty lines, that are whole and keep to "
      "their\npersons and things.\n"
      "--tokenizer compares tokenizer.json with cases.json of its folder: a list of {text, ids, plain_ids (without "
      "the\n"
      "template's), decoded (of plain_ids), decoded_without_special (of ids)}; the first that differs is named.\n\n"
      "Exit code 0: everything equal within tolerance, and of stories at least --least of the sentences are in the "
      "grammar;\n1: something is not.\n\n"
      "Examples: lockstep verify --layout dp=4\n"
      "          lockstep verify my.toml --layout dp=3,micro=2 --layout dp=3,micro=2,bucket=0,overlap=off --exact\n"
      "          lockstep verify --reference tests/golden/llama-tiny --layout dp=4 --precision fp32\n"
      "          lockstep verify --stories written.txt --least 0.9\n"
      "          lockstep verify --tokenizer tests/golden/tokenizers/llama3");
  settings->run.add_to(*command);
  command
      ->add_option(
          "--layout", settings->layouts,
          "A whole layout, as in dp=4,micro=2; may be given several times; --set layout.KEY changes one key of "
          "each")
      ->type_name("KEY=VALUE,..")
      ->allow_extra_args(false);
  command->add_option("--steps", settings->trial.steps, "Steps under each layout [3]")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N");
  command->add_flag("--exact", settings->trial.exact, "Demand equal bits of the layouts");
  command->add_option("--reference", settings->folder, "Folder with reference data")->type_name("DIR");
  command->add_option("--tokenizer", settings->tokenizer, "Folder with tokenizer.json and cases.json")
      ->type_name("DIR");
  CLI::Option* stories =
      command->add_option("--stories", settings->stories, "Text to hold against the grammar of stories");
  stories->type_name("FILE");
  command->add_option("--least", settings->least, "With --stories: the share of sentences that must be in it [1]")
      ->type_name("SHARE")
      ->needs(stories);
  add_precision_option(*command, settings->precision, "the run's own; of a reference fp64");
  command
      ->add_option("--threads", settings->threads,
                   "Threads of the kernels of each rank; the result is the same for any number [1]")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N");
  add_device_option(*command, settings->device);
  command->add_flag("--json", settings->json, "Print the report as JSON");
  command->callback([settings, &chosen] { chosen = [settings] { return verify(*settings); }; });
}

}  // namespace lockstep
