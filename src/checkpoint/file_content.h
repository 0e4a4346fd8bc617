// Whether ranks that each read files under a path of their own read the same content.
//
// Files may be large and most ranks see the very same ones, so only what is needed is read. Ranks whose files are the
// same ones of one file system (by inode, size and both times) have the same content. Where there are several such sets
// of files (copies on each host), the first rank of each reads its set once and computes its checksum.
#pragma once
#include <filesystem>
#include <span>
#include <string>

#include "comm/communicator.h"

namespace lockstep {

// The same text on ranks whose files have the same content, one after the other; their names and places do not count.
// All ranks call it. Fails as all_or_none() does (all_or_none.h); UserError (bad_input_file) for a file that cannot be
// read.
std::string content_of_files(std::span<const std::filesystem::path> files, Communicator& ranks);

}  // namespace lockstep
