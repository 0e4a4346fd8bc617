// What `inspect` says of a run's steps: its losses beside another run's, and a picture of one step.
#pragma once
#include <filesystem>

namespace lockstep {

// UserError (bad_input_file) where something else than a regular file is there: to open a pipe would wait for a writer.
void require_regular_or_none(const std::filesystem::path& file);

// Of the steps that both runs have in metrics.jsonl, a line each, and how far the losses are apart.
void show_beside(const std::filesystem::path& run, const std::filesystem::path& other);

// Draws the last complete step of the run's trace.json, all ranks, with what the memory of rank 0 was used for.
void draw_step(const std::filesystem::path& run, const std::filesystem::path& svg);

}  // namespace lockstep
