// RUN/ranks: the files of single ranks in a run folder.
#pragma once
#include <filesystem>
#include <string_view>

namespace lockstep {

// RUN/ranks/rank-00007.jsonl for rank 7 and "jsonl". ProgramError for a negative rank.
std::filesystem::path rank_file(const std::filesystem::path& run_folder, int rank, std::string_view ending);

// Makes RUN/ranks where it is missing; ranks of several processes may do so at the same time. EnvironmentError when it
// cannot be made.
void make_rank_folder(const std::filesystem::path& run_folder);

}  // namespace lockstep
