# Joins the .info files of all rows (AssembleRow.cmake) into one, after a line with nvcc's version.
cmake_minimum_required(VERSION 3.25)
set(text "nvcc ${VERSION}\n")
foreach(info IN LISTS INFOS)
  file(READ ${info} line)
  string(APPEND text "${line}")
endforeach()
file(WRITE ${OUT} "${text}")
