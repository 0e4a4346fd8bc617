// A file of lines that each are a JSON object with a "step", for a run that resumes.
//
// Opening drops the lines of steps after the checkpoint (they will be written again), what is no such line, and a last
// line that a killed process left unfinished. The new file is written beside and renamed, a block at a time, so a large
// file costs no memory. Failure: EnvironmentError naming the file and what the system said.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>

namespace lockstep {

// The descriptor of the file, which appends; the caller closes it. Keeps the lines of steps up to `last_step`, in their
// order, and calls `kept` with the step of each; 0 starts anew.
int open_step_lines(const std::filesystem::path& path, std::int64_t last_step,
                    const std::function<void(std::int64_t step)>& kept = {});
// Keeps the lines, whole objects with a step, that `keeps` says; of those before `from`, all, without a look at them.
int open_lines(const std::filesystem::path& path, const std::function<bool(const nlohmann::json& line)>& keeps,
               std::int64_t from = 0);

// Of a file whose steps ascend: the beginning of a line some way before the first of a step after `last_step`. To look
// from there on is enough, and does not take longer the longer the run is.
std::int64_t before_step_after(const std::filesystem::path& path, std::int64_t last_step);

}  // namespace lockstep
