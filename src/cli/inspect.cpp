#include "cli/inspect.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <fstream>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/peft_adapters.h"
#include "cli/inspect_step.h"
#include "data/token_file.h"
#include "data/token_file_header.h"
#include "spec/run/run_toml.h"
#include "spec/text/text_input.h"
#include "telemetry/number_text.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

void print_row(std::string_view name, const std::string& text) { fmt::print("{:<12} {}\n", name, text); }

void show_model(const ModelSpec& m) {
  print_row("model", fmt::format("{}, {} layers of {}, vocabulary {}: {} parameters", name_of(m.family), m.layers,
                                 m.width, grouped_digits(m.vocabulary), grouped_digits(parameter_count(m))));
}

void show_checkpoint(const Checkpoint& checkpoint) {
  struct Part {
    std::int64_t tensors = 0, elements = 0;
    DType dtype = DType::f32;
  };
  std::map<std::string, Part> parts;
  for (const ManifestTensor& t : checkpoint.manifest().tensors) {
    Part& part = parts[t.part];
    ++part.tensors;
    part.elements += LogicalTensor{t.name, t.shape}.elements();
    part.dtype = t.dtype;
  }
  std::int64_t bytes = 0;
  for (const ManifestFile& file : checkpoint.manifest().files) bytes += file.bytes;
  const Progress& p = checkpoint.progress();
  print_row("checkpoint",
            fmt::format("of step {}: {} updates, {} samples seen{}", p.step, p.updates, grouped_digits(p.samples),
                        p.loss_scale ? fmt::format(", loss scale {}", std::int64_t{1} << p.loss_scale->exponent) : ""));
  show_model(parse_run_toml(p.run_file, (checkpoint.path() / kManifestName).string(), ".").model);
  for (const auto& [name, part] : parts)
    print_row(name, fmt::format("{} tensors, {} elements of {}", part.tensors, grouped_digits(part.elements),
                                name_of(part.dtype)));
  print_row("files", fmt::format("{}, {}", checkpoint.manifest().files.size(), byte_text(bytes)));
  std::vector<std::string_view> kept;
  for (const ManifestFile& file : checkpoint.manifest().companions)
    kept.push_back(std::string_view(file.name).substr(kCompanionPrefix.size()));
  if (!kept.empty()) print_row("kept", fmt::format("{}, for export", fmt::join(kept, ", ")));
  print_row("whole", "yes: every file has its size and checksum, every slice is where the manifest says");
}

// A run folder: each checkpoint is opened, which reads all of it.
void show_run(const fs::path& folder) {
  const fs::path checkpoints = fs::exists(folder / "checkpoints") ? folder / "checkpoints" : folder;
  if (fs::exists(folder / "run.toml")) show_model(read_run_file(folder / "run.toml").model);
  require_regular_or_none(folder / "metrics.jsonl");
  if (std::ifstream in(folder / "metrics.jsonl"); in) {
    std::string line, last;
    std::int64_t lines = 0;
    while (std::getline(in, line)) ++lines, last = line;
    print_row("metrics", fmt::format("{} lines; the last: {}", lines, last.substr(0, 100)));
  }
  std::optional<std::int64_t> whole;  // the newest
  int damaged = 0;
  for (const std::int64_t step : steps_in(checkpoints)) {
    try {
      const Checkpoint checkpoint = open_checkpoint(checkpoints / step_folder_name(step));
      whole = step;
      print_row(step_folder_name(step), "whole");
    } catch (const UserError& error) {
      ++damaged;
      print_row(step_folder_name(step), fmt::format("damaged: {}", error.what()));
    }
  }
  print_row("whole", damaged == 0 ? "yes" : "no");
  if (damaged == 0) return;
  throw UserError(ExitCode::checkpoint,
                  fmt::format("{}: {} checkpoint{} damaged", folder.string(), damaged, damaged == 1 ? " is" : "s are"),
                  whole ? fmt::format("resume from {}", (checkpoints / step_folder_name(*whole)).string())
                        : "none is whole: take them from a copy, or begin a new run with another --out");
}

void show_adapters(const fs::path& folder) {
  const PeftAdapters adapters(folder);
  std::error_code ignored;
  print_row("adapters", fmt::format("of rank {}, alpha {}: {} parameters", adapters.lora().rank, adapters.lora().alpha,
                                    grouped_digits(adapters.parameters())));
  print_row("base", fmt::format("{}{}", quote_text(adapters.base()),
                                fs::is_directory(adapters.base(), ignored) ? "" : ", which is not there"));
  print_row("whole", "yes: config and weights can be read (the format has no checksums)");
}

void show_safetensors(const fs::path& path) {
  const SafetensorsFile file(path);
  std::int64_t bytes = 0;
  for (const SafetensorsEntry& e : file.entries()) {
    fmt::print("{:<6} {:<20} {}\n", e.dtype, fmt::format("[{}]", fmt::join(e.shape, ", ")), e.name);
    bytes += e.end - e.begin;
  }
  for (const auto& [key, value] : file.metadata())
    print_row("metadata", fmt::format("{} = {}", key, quote_text(value)));
  print_row("whole", fmt::format("yes: {} tensors cover {} exactly (the format has no checksums)",
                                 file.entries().size(), byte_text(bytes)));
}

void show_tokens(const fs::path& path) {
  const TokenFile file(path);
  print_row("tokens",
            fmt::format("{}, vocabulary {}", grouped_digits(file.tokens()), grouped_digits(file.vocabulary())));
  print_row("documents", grouped_digits(file.documents()));
  file.verify();
  print_row("whole", "yes: checksum, every id and the document index are right");
}

bool begins_with_token_magic(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;  // a pipe would wait for who writes it
  std::string start(kTokenFileMagic.size(), ' ');
  std::ifstream in(path, std::ios::binary);
  in.read(start.data(), std::ssize(start));
  return in && start == kTokenFileMagic;
}

struct InspectSettings {
  std::string path, beside, svg;
};

int run_inspect(const InspectSettings& s) {
  const std::string& name = s.path;
  const fs::path path = name;
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw UserError(ExitCode::bad_input_file, fmt::format("there is no {}", quote_text(name)), "check the path");
  if (!s.beside.empty()) {
    show_beside(path, s.beside);
  } else if (!s.svg.empty()) {
    draw_step(path, s.svg);
  } else if (!fs::is_directory(path, ignored)) {
    begins_with_token_magic(path) ? show_tokens(path) : show_safetensors(path);
  } else if (fs::exists(path / kManifestName, ignored)) {
    show_checkpoint(open_checkpoint(path));
  } else if (holds_adapters_alone(path)) {
    show_adapters(path);
  } else if (fs::exists(path / "config.json", ignored)) {
    const HfFolder folder(path);
    show_model(folder.spec());
    print_row("whole", "yes: config, files and index agree");
  } else if (fs::exists(path / "run.toml", ignored) || !steps_in(path).empty() ||
             !steps_in(path / "checkpoints").empty()) {
    show_run(path);
  } else {
    throw UserError(
        ExitCode::bad_input_file,
        fmt::format("{} is not a kind of file or folder that lockstep knows", quote_text(name)),
        "name a run folder, a checkpoint, a Hugging Face folder, adapters, a safetensors file or a token file");
  }
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_inspect(CLI::App& app, std::function<int()>& chosen) {
  auto s = std::make_shared<InspectSettings>();
  CLI::App* command = app.add_subcommand("inspect", "Show what is in a file or folder, and whether it is whole");
  command->footer(
      "Takes a run folder, a checkpoint, a Hugging Face folder, a folder of adapters, a safetensors file or a token "
      "file.\nExit code 0: whole; 4 or 6: damaged.\n"
      "--beside shows the losses of two runs, step by step. --svg draws one step of a run that was trained with\n"
      "--set run.trace=N: what every rank did, and what the memory of rank 0 was used for, by tag.\n\n"
      "Examples: lockstep inspect runs/example\n"
      "          lockstep inspect runs/resumed --beside runs/unbroken\n"
      "          lockstep inspect runs/example --svg step.svg");
  command->add_option("path", s->path, "File or folder")->required()->type_name("PATH");
  CLI::Option* beside = command->add_option("--beside", s->beside, "Another run folder, to show the losses of both");
  beside->type_name("DIR");
  command->add_option("--svg", s->svg, "Draw the last step of the run's trace.json to this file")
      ->type_name("FILE")
      ->excludes(beside);
  command->callback([s, &chosen] { chosen = [s] { return run_inspect(*s); }; });
}

}  // namespace lockstep
